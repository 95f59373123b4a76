//! Whoever is killed, nothing is left, and the owner hears of it.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use holdfast_browsers::{BrowserError, Ending, GuardCommand};
use rustix::process::Signal;
use support::page::PageServer;
use support::{
    bad_browser, everyone, exists, launch, one_at_a_time, runs, signal, until, with_role,
};

#[tokio::test]
async fn a_browser_that_is_killed_is_told_with_its_signal() {
    let _turn = one_at_a_time().await;
    let server = PageServer::start();
    let browser = launch(&server.link()).start().await.unwrap();
    browser.while_running(server.opened()).await.unwrap();
    let (profile, pids) = (browser.profile().to_owned(), everyone(&browser));
    signal(browser.pid(), Signal::KILL);
    let exit = browser.exited().await;
    assert_eq!((exit.ending, exit.asked), (Ending::Signal(9), false));
    let error = browser.while_running(std::future::pending::<()>()).await.unwrap_err();
    assert!(error.to_string().contains("signal 9"), "{error}");
    until("all processes are gone", || !pids.iter().any(|pid| exists(*pid))).await;
    assert!(!profile.exists());
    assert_eq!(browser.close().await.unwrap(), exit);
}

#[tokio::test]
async fn a_browser_outlives_its_gpu_process() {
    let _turn = one_at_a_time().await;
    let server = PageServer::start();
    let browser = launch(&server.link()).start().await.unwrap();
    browser.while_running(server.opened()).await.unwrap();
    let old = with_role(&browser, "gpu-process");
    assert_eq!(old.len(), 1);
    signal(old[0], Signal::KILL);
    until("there is another GPU process", || {
        with_role(&browser, "gpu-process").iter().any(|pid| *pid != old[0])
    })
    .await;
    browser.while_running(server.ticks()).await.unwrap();
    assert!(browser.close().await.unwrap().asked);
}

#[tokio::test]
async fn a_killed_guard_takes_the_browser_with_it() {
    let _turn = one_at_a_time().await;
    let server = PageServer::start();
    let browser = launch(&server.link()).start().await.unwrap();
    browser.while_running(server.opened()).await.unwrap();
    let (profile, pids) = (browser.profile().to_owned(), everyone(&browser));
    signal(browser.guard_pid(), Signal::KILL);
    assert_eq!(browser.exited().await.ending, Ending::GuardLost);
    until("all processes have ended", || !pids.iter().any(|pid| runs(*pid))).await;
    assert!(!profile.exists());
    assert!(!exists(browser.guard_pid()), "the guard is not reaped");
    assert_eq!(browser.close().await.unwrap().ending, Ending::GuardLost);
}

#[tokio::test]
async fn a_guard_that_is_asked_to_end_cleans_up_first() {
    let _turn = one_at_a_time().await;
    let server = PageServer::start();
    let browser = launch(&server.link()).start().await.unwrap();
    browser.while_running(server.opened()).await.unwrap();
    let (profile, pids) = (browser.profile().to_owned(), everyone(&browser));
    signal(browser.guard_pid(), Signal::TERM);
    assert_ne!(browser.exited().await.ending, Ending::GuardLost);
    until("all processes are gone", || !pids.iter().any(|pid| exists(*pid))).await;
    assert!(!profile.exists());
}

/// Says in the environment of this very test that it is the one to be killed.
const ROLE: &str = "HOLDFAST_TEST_IS_KILLED";

#[tokio::test]
async fn a_killed_holdfast_leaves_no_browser_and_no_profile() {
    if std::env::var_os(ROLE).is_some() {
        return be_killed().await;
    }
    let _turn = one_at_a_time().await;
    let mut holdfast = Holdfast::start("a_killed_holdfast_leaves_no_browser_and_no_profile");
    let (profile, pids) = holdfast.launched();
    assert!(profile.is_dir());
    assert!(pids.len() > 3 && pids.iter().all(|pid| runs(*pid)), "{pids:?}");
    holdfast.kill();
    until("all processes have ended", || !pids.iter().any(|pid| runs(*pid))).await;
    until("the profile is gone", || !profile.exists()).await;
}

/// Launches a browser, tells of it, and waits for the end.
async fn be_killed() {
    let server = PageServer::start();
    let browser = launch(&server.link()).start().await.unwrap();
    browser.while_running(server.opened()).await.unwrap();
    let pids: Vec<String> = everyone(&browser).iter().map(u32::to_string).collect();
    println!("\nlaunched {} {}", pids.join(","), browser.profile().display());
    std::future::pending().await
}

/// This test program as another process.
struct Holdfast(Child);

impl Holdfast {
    fn start(test: &str) -> Holdfast {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(ROLE, "yes")
            .stdout(Stdio::piped())
            .spawn();
        Holdfast(child.unwrap())
    }

    fn launched(&mut self) -> (PathBuf, Vec<u32>) {
        let lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        let line = lines.map(Result::unwrap).find(|line| line.starts_with("launched "));
        let line = line.unwrap();
        let mut words = line.splitn(3, ' ').skip(1);
        let pids = words.next().unwrap().split(',').map(|pid| pid.parse().unwrap()).collect();
        (PathBuf::from(words.next().unwrap()), pids)
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Holdfast {
    fn drop(&mut self) {
        self.kill();
    }
}

#[tokio::test]
async fn a_program_that_exits_at_once_is_an_error_with_what_it_printed() {
    let browser = bad_browser("exits-at-once.sh").start().await.unwrap();
    let error = browser.while_running(std::future::pending::<()>()).await.unwrap_err();
    let BrowserError::Exited { exit, .. } = &error else { panic!("{error}") };
    assert_eq!(exit.ending, Ending::Code(3));
    assert!(error.to_string().contains("Out of luck."), "{error}");
    browser.close().await.unwrap();
    assert!(!browser.profile().exists());
}

#[tokio::test]
async fn a_missing_shared_library_is_named() {
    let browser = bad_browser("misses-a-library.sh").start().await.unwrap();
    let error = browser.while_running(std::future::pending::<()>()).await.unwrap_err();
    assert!(
        matches!(&error, BrowserError::MissingLibrary { library, .. } if library == "libnss3.so")
    );
}

#[tokio::test]
async fn a_missing_program_is_an_error_with_its_path() {
    let error = bad_browser("not-there.sh").start().await.unwrap_err();
    let BrowserError::CannotStart { program, source } = error else { panic!("{error}") };
    assert!(program.ends_with("not-there.sh"));
    assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
}

#[tokio::test]
async fn a_browser_that_does_not_want_to_end_is_killed_with_its_daemons() {
    let browser = bad_browser("ignores-terminate.sh").start().await.unwrap();
    until("its children run", || browser.processes().len() == 3).await;
    let pids = everyone(&browser);
    let exit = browser.close().await.unwrap();
    assert_eq!((exit.ending, exit.asked), (Ending::Signal(9), true));
    assert!(!pids.iter().any(|pid| exists(*pid)));
}

#[tokio::test]
async fn what_a_browser_leaves_behind_is_ended() {
    let browser = bad_browser("leaves-a-child.sh").start().await.unwrap();
    let exit = browser.exited().await;
    assert_eq!(exit.ending, Ending::Code(0));
    let left = exit.stderr.trim().strip_prefix("left ").unwrap().parse().unwrap();
    assert!(!exists(left), "process {left} is left");
    browser.close().await.unwrap();
}

#[tokio::test]
async fn a_guard_that_is_missing_or_none_is_told() {
    let check = async |program: &str, arguments: &[&str]| {
        let mut launch = bad_browser("exits-at-once.sh");
        let arguments = arguments.iter().map(Into::into).collect();
        launch.guard = GuardCommand { program: program.into(), arguments };
        let error = launch.start().await.unwrap_err();
        assert!(matches!(error, BrowserError::Guard { .. }), "{error}");
    };
    check("/nowhere/guard", &[]).await;
    check("/bin/echo", &["Usage: something else"]).await;
    check("/bin/cat", &[]).await;
    check("/bin/true", &[]).await;
}
