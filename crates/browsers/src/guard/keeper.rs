//! The guard at work: start, wait, end, clean up.

use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::tail::Tail;
use super::{Order, Report, remove};
use crate::display::Display;
use crate::exit::Ending;
use crate::owner::Owner;
use crate::processes;

/// How long a browser may take to write its data and exit when it is asked.
const POLITE_LIMIT: Duration = Duration::from_secs(5);
/// How long the operating system may take to end processes that are killed.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// How long a display may take to clean up.
const DISPLAY_LIMIT: Duration = Duration::from_secs(3);
/// How often those that are left are killed again, since a dying process can still fork.
const KILL_PAUSE: Duration = Duration::from_millis(20);

enum Event {
    /// The leash is gone, or somebody asked the guard to stop.
    Stop,
    /// A child has ended and is reaped.
    Ended(Pid, Ending),
    /// There are no children any more.
    Alone,
}

/// Starts what the order says and stays until all of it is gone.
pub(super) fn keep(order: &Order) -> io::Result<()> {
    adopt_orphans()?;
    // Until this process ends, which is after it has removed the profile.
    let _owner = Owner::of(Path::new(&order.remove));
    let (sender, events) = channel();
    stop_on_signals(sender.clone())?;
    let started = start_display(order).and_then(|display| Ok((start(order, &display)?, display)));
    let (mut browser, display) = match started {
        Ok(started) => started,
        Err(error) => {
            let (os_error, message) = (error.raw_os_error(), error.to_string());
            Report::CannotStart { os_error, message }.send();
            Report::Ended { left: remove(Path::new(&order.remove)) }.send();
            return Ok(());
        }
    };
    let main = Pid::from_child(&browser);
    let tail = browser.stderr.take().map(Tail::follow);
    Report::Started { pid: browser.id() }.send();
    stop_at_the_end_of_input(sender.clone());
    reap(sender);

    let display = display.as_ref().map(Display::pid);
    let mut tree = Tree { main, display, events, ending: None, is_alone: false };
    let asked = tree.wait_until_asked_or_over();
    if asked {
        tree.ask_to_end();
    }
    tree.kill();
    let stderr = tail.map(|tail| tail.text(tree.is_over())).unwrap_or_default();
    let ending = tree.ending.unwrap_or(Ending::Stuck);
    Report::Exited { ending, stderr, asked }.send();
    let left = if tree.is_over() {
        remove(Path::new(&order.remove))
    } else {
        Some(format!("processes {:?} cannot be killed", processes::descendants(std::process::id())))
    };
    Report::Ended { left }.send();
    Ok(())
}

/// The browser's processes, as far as the guard has heard of their end.
struct Tree {
    main: Pid,
    /// The process that the browser draws on, if it has one of its own.
    display: Option<u32>,
    events: Receiver<Event>,
    ending: Option<Ending>,
    is_alone: bool,
}

impl Tree {
    /// True when it was asked to end, false when the main process ended by itself.
    fn wait_until_asked_or_over(&mut self) -> bool {
        while self.ending.is_none() {
            match self.events.recv() {
                Ok(Event::Stop) | Err(_) => return true,
                Ok(event) => self.note(event),
            }
        }
        false
    }

    /// Only the main process is asked: it ends the others in the order that saves their data.
    fn ask_to_end(&mut self) {
        let _ = rustix::process::kill_process(self.main, Signal::TERM);
        let deadline = Instant::now() + POLITE_LIMIT;
        while self.ending.is_none() {
            let rest = deadline.saturating_duration_since(Instant::now());
            let Ok(event) = self.events.recv_timeout(rest) else { return };
            self.note(event);
        }
    }

    /// Kills what is left, in the group and outside of it. The display comes last, and is asked:
    /// it has files outside of the profile that only it can remove.
    fn kill(&mut self) {
        let deadline = Instant::now() + KILL_LIMIT;
        let display_deadline = Instant::now() + DISPLAY_LIMIT;
        while !self.is_over() && Instant::now() < deadline {
            let _ = rustix::process::kill_process_group(self.main, Signal::KILL);
            let left = processes::descendants(std::process::id());
            let is_display_alone = left.iter().all(|pid| self.display == Some(*pid));
            for pid in left {
                let signal = match self.display == Some(pid) && Instant::now() < display_deadline {
                    true if is_display_alone => Signal::TERM,
                    true => continue,
                    false => Signal::KILL,
                };
                if let Some(pid) = pid.try_into().ok().and_then(Pid::from_raw) {
                    let _ = rustix::process::kill_process(pid, signal);
                }
            }
            if let Ok(event) = self.events.recv_timeout(KILL_PAUSE) {
                self.note(event);
            }
        }
    }

    /// Where orphans are adopted, having no children means that all descendants are gone.
    #[cfg(target_os = "linux")]
    fn is_over(&self) -> bool {
        self.is_alone
    }

    #[cfg(not(target_os = "linux"))]
    fn is_over(&self) -> bool {
        self.is_alone && rustix::process::test_kill_process_group(self.main).is_err()
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Ended(pid, ending) if pid == self.main => self.ending = Some(ending),
            Event::Alone => self.is_alone = true,
            Event::Ended(..) | Event::Stop => {}
        }
    }
}

fn start_display(order: &Order) -> io::Result<Option<Display>> {
    order.display.as_ref().map(|key| Display::start(Path::new(key))).transpose()
}

fn start(order: &Order, display: &Option<Display>) -> io::Result<Child> {
    let mut command = Command::new(&order.program);
    let more = display.as_ref().map(Display::environment).unwrap_or_default();
    command
        .args(&order.arguments)
        .envs(order.environment.iter().chain(&more).map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0);
    // Even a guard that is killed takes the browser with it.
    crate::orphan::die_with_this_thread(&mut command, Signal::KILL);
    command.spawn()
}

/// Processes whose parent ends become children of the guard, so none can slip away.
#[cfg(target_os = "linux")]
fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

#[cfg(not(target_os = "linux"))]
fn adopt_orphans() -> io::Result<()> {
    Ok(())
}

fn stop_on_signals(sender: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
    thread::spawn(move || {
        for _ in signals.forever() {
            let _ = sender.send(Event::Stop);
        }
    });
    Ok(())
}

fn stop_at_the_end_of_input(sender: Sender<Event>) {
    thread::spawn(move || {
        let mut input = io::stdin().lock();
        let mut buffer = [0; 64];
        loop {
            match input.read(&mut buffer) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
            }
        }
        let _ = sender.send(Event::Stop);
    });
}

/// Reaps every child, the adopted ones too.
fn reap(sender: Sender<Event>) {
    thread::spawn(move || {
        loop {
            let event = match rustix::process::wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) => Event::Ended(pid, ending(status)),
                Ok(None) | Err(rustix::io::Errno::INTR) => continue,
                Err(_) => Event::Alone,
            };
            let is_last = matches!(event, Event::Alone);
            if sender.send(event).is_err() || is_last {
                return;
            }
        }
    });
}

fn ending(status: WaitStatus) -> Ending {
    match (status.exit_status(), status.terminating_signal()) {
        (_, Some(signal)) => Ending::Signal(signal),
        (code, None) => Ending::Code(code.unwrap_or_default()),
    }
}
