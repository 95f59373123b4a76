//! A running browser and its owner's hold on it.

use std::fmt;
use std::future::Future;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use crate::error::BrowserError;
use crate::exit::{Ending, Exit};
use crate::guard::{Order, Report};
use crate::installed::{Installed, Kind};
use crate::launch::GuardCommand;
use crate::processes::{self, Process};

/// A browser that was launched. Dropping it ends the browser as [`close`](Browser::close) does,
/// without waiting for it.
pub struct Browser {
    id: BrowserId,
    installed: Installed,
    profile: PathBuf,
    pid: u32,
    guard_pid: u32,
    /// The pipe to the guard. The guard ends the browser when it closes, which is why there is
    /// nothing to do on drop.
    leash: Mutex<Option<ChildStdin>>,
    status: watch::Receiver<Status>,
}

/// Tells the browsers that this process launched apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BrowserId(u64);

impl fmt::Display for BrowserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "browser-{}", self.0)
    }
}

impl Browser {
    /// A number that no other browser of this process has.
    pub fn id(&self) -> BrowserId {
        self.id
    }

    /// The process id of the browser's main process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The process id of its guard.
    pub fn guard_pid(&self) -> u32 {
        self.guard_pid
    }

    /// Which browser it is.
    pub fn kind(&self) -> Kind {
        self.installed.kind
    }

    /// Its version.
    pub fn version(&self) -> &str {
        &self.installed.version
    }

    /// Kind and version, for people.
    pub fn name(&self) -> String {
        self.installed.to_string()
    }

    /// The folder where it keeps its data.
    pub fn profile(&self) -> &Path {
        &self.profile
    }

    /// Waits until the browser has ended, and tells how.
    pub async fn exited(&self) -> Exit {
        self.wait_for(|status| status.exit.is_some()).await.exit.unwrap_or_else(guard_lost)
    }

    /// Waits for something that needs the browser, such as its page joining. If the browser ends
    /// first, that is the error.
    pub async fn while_running<T>(
        &self,
        awaited: impl Future<Output = T>,
    ) -> Result<T, BrowserError> {
        tokio::select! {
            // What has happened already counts, even if the browser has ended since.
            biased;
            value = awaited => Ok(value),
            exit = self.exited() => Err(exit.into_error(&self.installed)),
        }
    }

    /// Ends the browser: politely at first, by force after some seconds. Returns when all its
    /// processes are gone, its guard too, and a private profile is removed. Can be called again.
    pub async fn close(&self) -> Result<Exit, BrowserError> {
        drop(self.leash.lock().unwrap_or_else(PoisonError::into_inner).take());
        let status = self.wait_for(|status| status.is_gone).await;
        match status.left {
            Some(what) => Err(BrowserError::LeftBehind { browser: self.name(), what }),
            None => Ok(status.exit.unwrap_or_else(guard_lost)),
        }
    }

    /// Its processes. Empty where the operating system does not show them (only Linux does) and
    /// when the browser is gone.
    pub fn processes(&self) -> Vec<Process> {
        processes::roles(self.tree())
    }

    /// The memory of all its processes in bytes, with what they share counted once. `None` where
    /// it cannot be measured: on other systems than Linux, and where a sandbox hides a process.
    pub fn memory(&self) -> Option<u64> {
        processes::memory(&self.tree())
    }

    /// Below the guard, because the browser's own children outlive it for a moment.
    pub(crate) fn tree(&self) -> Vec<u32> {
        if self.status.borrow().is_gone {
            return Vec::new();
        }
        processes::descendants(self.guard_pid)
    }

    async fn wait_for(&self, condition: impl FnMut(&Status) -> bool) -> Status {
        let mut status = self.status.clone();
        // It fails when the watcher is gone, whose last word is then what counts.
        let _ = status.wait_for(condition).await;
        status.borrow().clone()
    }

    pub(crate) async fn start(
        installed: Installed,
        guard: &GuardCommand,
        profile: &Path,
        order: &Order,
    ) -> Result<Browser, BrowserError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let guard_failed =
            |message: String| BrowserError::Guard { program: guard.program.clone(), message };
        let (leash, guard_pid, mut status) =
            start_guard(guard, order).map_err(|error| guard_failed(error.to_string()))?;
        // The watcher always says at last that everything is gone.
        let _ = status.wait_for(|status| status.pid.is_some() || status.is_gone).await;
        let now = status.borrow().clone();
        let Some(pid) = now.pid else {
            return Err(match now.failure {
                Some(Failure::Program { os_error, message }) => BrowserError::CannotStart {
                    program: installed.program,
                    source: os_error
                        .map_or_else(|| io::Error::other(message), io::Error::from_raw_os_error),
                },
                Some(Failure::Guard(message)) => guard_failed(message),
                None => guard_failed("it ended before it had started the browser".to_owned()),
            });
        };
        let id = BrowserId(NEXT.fetch_add(1, Ordering::Relaxed));
        let (profile, leash) = (profile.to_owned(), Mutex::new(Some(leash)));
        Ok(Browser { id, installed, profile, pid, guard_pid, leash, status })
    }
}

impl fmt::Debug for Browser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Browser({}, {}, process {})", self.id, self.installed, self.pid)
    }
}

/// What is known of a browser.
#[derive(Clone, Debug, Default)]
struct Status {
    pid: Option<u32>,
    failure: Option<Failure>,
    exit: Option<Exit>,
    left: Option<String>,
    is_gone: bool,
}

#[derive(Clone, Debug)]
enum Failure {
    Program { os_error: Option<i32>, message: String },
    Guard(String),
}

fn guard_lost() -> Exit {
    Exit { ending: Ending::GuardLost, stderr: String::new(), asked: false }
}

/// Starts a guard and a thread that watches it. A thread and not a task, because it must go on
/// when the caller's runtime is shut down: it is what reaps the guard.
fn start_guard(
    command: &GuardCommand,
    order: &Order,
) -> io::Result<(ChildStdin, u32, watch::Receiver<Status>)> {
    let mut guard = Command::new(&command.program);
    guard.args(&command.arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut guard, 0);
    // The watcher comes first: a guard that nobody watches would never be reaped.
    let (hand_over, handed_over) = std::sync::mpsc::channel();
    let (sender, status) = watch::channel(Status::default());
    let remove = PathBuf::from(&order.remove);
    std::thread::Builder::new().name("browser".to_owned()).spawn(move || {
        if let Ok(guard) = handed_over.recv() {
            watch_guard(guard, &remove, &sender);
        }
    })?;
    let mut guard = guard.spawn()?;
    let guard_pid = guard.id();
    let leash = guard.stdin.take();
    let _ = hand_over.send(guard);
    let mut leash = leash.ok_or_else(|| io::Error::other("it has no standard input"))?;
    // A guard that does not read it has ended, which the watcher tells better.
    let _ = order.write(&mut leash);
    Ok((leash, guard_pid, status))
}

/// Notes what the guard tells, reaps it, and does its work if it was killed.
fn watch_guard(mut guard: Child, remove: &Path, status: &watch::Sender<Status>) {
    let mut is_clean = false;
    if let Some(pipe) = guard.stdout.take() {
        let mut pipe = BufReader::new(pipe);
        loop {
            match Report::read(&mut pipe) {
                Ok(None) => break,
                Ok(Some(report)) => {
                    is_clean |= matches!(report, Report::Ended { .. });
                    status.send_modify(|status| status.note(report));
                }
                Err(error) => {
                    let message = format!("it does not speak like a guard ({error})");
                    status.send_modify(|status| status.failure = Some(Failure::Guard(message)));
                    let _ = guard.kill();
                    break;
                }
            }
        }
    }
    let _ = guard.wait();
    let mut left = None;
    if !is_clean {
        let group = status.borrow().pid;
        left = group.and_then(end_group).or_else(|| crate::guard::remove(remove));
    }
    status.send_modify(|status| {
        status.exit.get_or_insert_with(guard_lost);
        status.left = status.left.take().or(left);
        status.is_gone = true;
    });
}

impl Status {
    fn note(&mut self, report: Report) {
        match report {
            Report::Started { pid } => self.pid = Some(pid),
            Report::CannotStart { os_error, message } => {
                self.failure = Some(Failure::Program { os_error, message });
            }
            Report::Exited { ending, stderr, asked } => {
                self.exit = Some(Exit { ending, stderr, asked });
            }
            Report::Ended { left } => self.left = left,
        }
    }
}

/// Kills a process group and waits until it is gone. Says what is left otherwise.
#[cfg(unix)]
fn end_group(group: u32) -> Option<String> {
    use rustix::process::{Pid, Signal, kill_process_group};
    use std::time::{Duration, Instant};
    const LIMIT: Duration = Duration::from_secs(10);
    let leader = i32::try_from(group).ok().and_then(Pid::from_raw)?;
    let deadline = Instant::now() + LIMIT;
    while processes::group_is_alive(group) {
        if Instant::now() > deadline {
            return Some(format!("process group {group} cannot be killed"));
        }
        let _ = kill_process_group(leader, Signal::KILL);
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

#[cfg(not(unix))]
fn end_group(_group: u32) -> Option<String> {
    None
}
