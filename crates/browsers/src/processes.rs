//! The process tree below a process, as the operating system shows it.
//!
//! Linux only; elsewhere a tree looks empty, and what needs it says so.

/// A process of a browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// What it does: `browser` for the main process, otherwise what the browser calls it, such as
    /// `renderer`, `gpu-process` or `utility`.
    pub role: String,
}

/// The living descendants of a process.
#[cfg(target_os = "linux")]
pub(crate) fn descendants(root: u32) -> Vec<u32> {
    let all = linux::all();
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(&parent) = tree.get(next) {
        tree.extend(all.iter().filter(|each| each.parent == parent).map(|each| each.pid));
        next += 1;
    }
    let is_alive = |pid: &u32| all.iter().any(|each| each.pid == *pid && !each.is_zombie);
    tree.into_iter().skip(1).filter(is_alive).collect()
}

/// Whether a process group has a living member.
#[cfg(target_os = "linux")]
pub(crate) fn group_is_alive(group: u32) -> bool {
    linux::all().iter().any(|each| each.group == group && !each.is_zombie)
}

/// What each process is for.
#[cfg(target_os = "linux")]
pub(crate) fn roles(pids: Vec<u32>) -> Vec<Process> {
    let role = |pid| Some(Process { pid, role: linux::role(pid)? });
    pids.into_iter().filter_map(role).collect()
}

/// The memory of processes in bytes, with what several of them map counted once (PSS). `None`
/// where the operating system does not tell it for each of them.
#[cfg(target_os = "linux")]
pub(crate) fn memory(pids: &[u32]) -> Option<u64> {
    let mut sum = 0;
    for pid in pids {
        sum += linux::proportional_bytes(*pid)?;
    }
    (!pids.is_empty()).then_some(sum)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn descendants(_root: u32) -> Vec<u32> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn roles(_pids: Vec<u32>) -> Vec<Process> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn memory(_pids: &[u32]) -> Option<u64> {
    None
}

#[cfg(all(unix, not(target_os = "linux")))]
pub(crate) fn group_is_alive(group: u32) -> bool {
    let group = i32::try_from(group).ok().and_then(rustix::process::Pid::from_raw);
    group.is_some_and(|group| rustix::process::test_kill_process_group(group).is_ok())
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::io;

    pub(super) struct Entry {
        pub(super) pid: u32,
        pub(super) parent: u32,
        pub(super) group: u32,
        pub(super) is_zombie: bool,
    }

    pub(super) fn all() -> Vec<Entry> {
        let Ok(folders) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = folders.flatten().filter_map(|each| each.file_name().to_str()?.parse().ok());
        // One that cannot be read has ended in the meantime.
        pids.filter_map(|pid: u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            parse(pid, &stat)
        })
        .collect()
    }

    /// `pid (name) state parent group …`, where the name may itself have spaces and brackets.
    pub(super) fn parse(pid: u32, stat: &str) -> Option<Entry> {
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        Some(Entry { pid, parent, group, is_zombie: matches!(state, "Z" | "X") })
    }

    pub(super) fn role(pid: u32) -> Option<String> {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        // Processes that a zygote forked have their arguments in one string.
        let mut words = line.split(['\0', ' ']);
        let role = words.find_map(|word| word.strip_prefix("--type=")).unwrap_or("browser");
        Some(role.to_owned())
    }

    /// Zero for a process that has ended, `None` for one that may not be looked at.
    pub(super) fn proportional_bytes(pid: u32) -> Option<u64> {
        const NO_SUCH_PROCESS: i32 = 3;
        let text = match fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(0),
            Err(error) if error.raw_os_error() == Some(NO_SUCH_PROCESS) => return Some(0),
            Err(_) => return None,
        };
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kilobytes * 1024)
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_confuse_the_reader() {
        let entry = linux::parse(7, "7 (a) b) S 3 5 5 0 -1").unwrap();
        assert_eq!((entry.parent, entry.group, entry.is_zombie), (3, 5, false));
        assert!(linux::parse(7, "7 (a) Z 3 5 5 0 -1").unwrap().is_zombie);
    }

    #[test]
    fn a_child_is_a_descendant_and_a_stranger_is_not() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let tree = descendants(std::process::id());
        let of_child = descendants(child.id());
        child.kill().and_then(|()| child.wait()).unwrap();
        assert!(tree.contains(&child.id()));
        assert!(!tree.contains(&std::process::id()));
        assert!(of_child.is_empty());
    }

    #[test]
    fn memory_is_measured_for_this_process_and_for_nothing_there_is_no_figure() {
        assert!(memory(&[std::process::id()]).unwrap() > 100_000);
        assert_eq!(memory(&[]), None);
    }
}
