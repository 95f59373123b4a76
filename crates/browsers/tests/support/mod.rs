//! What the tests with a real browser have in common.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

pub mod page;
pub mod present;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_browsers::{Browser, GuardCommand, Installed, Launch, packaged};
use tokio::sync::{Mutex, MutexGuard};

/// How long anything may take before a test fails. Generous: nothing here measures time.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Two browsers at once would only make a small machine slow. This is for `cargo test`; nextest, which
/// runs each test in a process of its own, goes by `.config/nextest.toml`.
pub async fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

/// The packaged Chromium, unpacked once for all tests.
pub fn chromium() -> Installed {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser-cache");
    packaged(&cache, &|line| println!("{line}")).unwrap()
}

pub fn guard() -> GuardCommand {
    GuardCommand { program: PathBuf::from(env!("CARGO_BIN_EXE_holdfast-guard")), arguments: vec![] }
}

pub fn launch(link: &str) -> Launch {
    Launch::new(chromium(), link, guard())
}

/// A script of `tests/programs` in the place of a browser, to fail in ways that a good one does
/// not.
pub fn bad_browser(name: &str) -> Launch {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let kind = holdfast_browsers::Kind::Chromium;
    let browser = Installed { kind, program, version: "1".to_owned(), libraries: None };
    Launch::new(browser, "http://127.0.0.1:1/", guard())
}

/// Whether this machine has a Vulkan driver, which Firefox needs for WebGPU.
pub fn has_vulkan() -> bool {
    ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d"]
        .iter()
        .any(|folder| std::fs::read_dir(folder).is_ok_and(|mut files| files.next().is_some()))
}

/// Whether a file of the profile has what the page stored. Both write it as UTF-16 or UTF-8.
pub fn stores(profile: &Path) -> bool {
    let wide: Vec<u8> = "something".bytes().flat_map(|byte| [byte, 0]).collect();
    let mut folders = vec![profile.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let is_database = path.to_string_lossy().contains("storage");
            let bytes = if is_database { std::fs::read(&path).unwrap_or_default() } else { vec![] };
            let has = |what: &[u8]| bytes.windows(what.len()).any(|window| window == what);
            if has(b"something") || has(&wide) {
                return true;
            }
        }
    }
    false
}

/// Waits until a condition holds; fails the test when it does not.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// All processes of a browser, its guard among them.
pub fn everyone(browser: &Browser) -> Vec<u32> {
    let pids = browser.processes().into_iter().map(|process| process.pid);
    pids.chain([browser.guard_pid()]).collect()
}

/// The processes of a role.
pub fn with_role(browser: &Browser, role: &str) -> Vec<u32> {
    let processes = browser.processes().into_iter();
    processes.filter(|process| process.role == role).map(|process| process.pid).collect()
}

/// Whether a process runs. One that has ended but is not reaped by a parent outside of this test
/// does not run; `exists` tells whether it is still there.
pub fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with(['Z', 'X']))
}

pub fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// The processes that name a path on their command line.
pub fn naming(path: &Path) -> Vec<u32> {
    let path = path.to_str().unwrap();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| command_line(*pid).contains(path)).collect()
}

pub fn command_line(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}
