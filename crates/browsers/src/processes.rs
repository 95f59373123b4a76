//! The process tree below a process, as the operating system shows it.
//!
//! Linux only; elsewhere a tree looks empty, and what needs it says so.

/// A process of a browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// What it does, in the words of Chromium whatever the browser: `browser` for the main process,
    /// `renderer` for those that pages run in, `gpu-process`, `utility` and the like; `display` for
    /// the display of a browser that has no headless mode.
    pub role: String,
}

/// How much a process has computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) pid: u32,
    /// When it was started, which tells it from an earlier one of the same id.
    pub(crate) started: u64,
    /// Time on the processor, in the system's own unit.
    pub(crate) ticks: u64,
}

impl Work {
    pub(crate) fn is_same_process(&self, other: &Work) -> bool {
        (self.pid, self.started) == (other.pid, other.started)
    }
}

/// How much a process has computed; `None` if it has ended.
#[cfg(target_os = "linux")]
pub(crate) fn work(pid: u32) -> Option<Work> {
    linux::work(pid, &std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn work(_pid: u32) -> Option<Work> {
    None
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

/// The memory of a process and of all below it in bytes, with what they share counted once. `None`
/// where it cannot be measured: on other systems than Linux, and where a sandbox hides a process.
pub fn tree_memory(root: u32) -> Option<u64> {
    let mut tree = descendants(root);
    tree.push(root);
    memory(&tree)
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

    /// Fields 14, 15 and 22: time in the program, time in the kernel, and the start.
    pub(super) fn work(pid: u32, stat: &str) -> Option<super::Work> {
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |at: usize| fields.get(at - 3)?.parse::<u64>().ok();
        Some(super::Work { pid, started: number(22)?, ticks: number(14)? + number(15)? })
    }

    pub(super) fn role(pid: u32) -> Option<String> {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        Some(role_by(&String::from_utf8_lossy(&line)))
    }

    /// Each family tells its processes apart in another way: Chromium by an argument, Firefox by
    /// the last argument, WebKit by the program.
    pub(super) fn role_by(line: &str) -> String {
        // Processes that a zygote forked have their arguments in one string.
        let words: Vec<&str> = line.split(['\0', ' ']).filter(|word| !word.is_empty()).collect();
        if let Some(role) = words.iter().find_map(|word| word.strip_prefix("--type=")) {
            return role.to_owned();
        }
        let program = words.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
        let last = if words.contains(&"-contentproc") { words.last() } else { None };
        match (program, last.copied()) {
            (_, Some("tab")) | ("WebKitWebProcess", _) => "renderer",
            (_, Some("gpu")) | ("WebKitGPUProcess", _) => "gpu-process",
            (_, Some(role)) => role,
            ("WebKitNetworkProcess", _) => "utility",
            ("crashhelper", _) => "crashpad-handler",
            ("Xvfb", _) => "display",
            _ => "browser",
        }
        .to_owned()
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
    fn time_on_the_processor_is_read_from_the_right_fields() {
        let stat = "7 (a) b) S 4 5 6 7 8 9 10 11 12 13 140 150 16 17 18 19 20 21 2200 23";
        let expected = Work { pid: 7, started: 2200, ticks: 290 };
        assert_eq!(linux::work(7, stat), Some(expected));
        assert_eq!(linux::work(7, "7 (a) S 4 5"), None);
    }

    #[test]
    fn roles_are_told_for_every_family() {
        let check = |line: &str, role: &str| {
            assert_eq!(linux::role_by(&line.replace('|', "\0")), role, "{line}");
        };
        check("/opt/chromium|--headless|file:///x", "browser");
        check("/opt/chromium --type=renderer --lang=en", "renderer");
        check("/opt/chromium|--type=gpu-process|", "gpu-process");
        check("firefox-esr|--headless|file:///tab", "browser");
        check("/usr/lib/firefox|-contentproc|-isForBrowser|{u}|12|tab|", "renderer");
        check("/usr/lib/firefox|-contentproc|{u}|12|gpu|", "gpu-process");
        check("/usr/lib/firefox|-contentproc|{u}|12|forkserver|", "forkserver");
        check("/usr/lib/firefox/crashhelper|4888|11|/tmp/|13", "crashpad-handler");
        check("/usr/lib/webkit2gtk-4.1/MiniBrowser|file:///x", "browser");
        check("/usr/lib/webkit2gtk-4.1/WebKitWebProcess|5|24", "renderer");
        check("/usr/lib/webkit2gtk-4.1/WebKitNetworkProcess|5", "utility");
        check("Xvfb|-displayfd|1", "display");
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
