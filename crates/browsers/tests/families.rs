//! Firefox and WebKit are started, owned and ended exactly like Chromium.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use holdfast_browsers::{Backends, BrowserError, Ending, Installed, Kind, Launch, Profile};
use rustix::process::Signal;
use support::page::PageServer;
use support::present::present;
use support::{everyone, exists, guard, naming, one_at_a_time, runs, signal, until, with_role};

async fn opens_the_link_and_closes_without_a_trace(browser: Installed, expected: &str) {
    let _turn = one_at_a_time().await;
    let kind = browser.kind;
    let server = PageServer::start();
    let browser = Launch::new(browser, server.link(), guard()).start().await.unwrap();
    let seen = browser.while_running(server.opened()).await.unwrap();
    assert_eq!(seen, expected);
    let (profile, pids) = (browser.profile().to_owned(), everyone(&browser));
    assert_eq!(browser.kind(), kind);
    assert_eq!(with_role(&browser, "browser"), [browser.pid()]);
    assert!(!with_role(&browser, "renderer").is_empty());
    assert!(browser.memory().unwrap() > 50 << 20);
    for pid in &pids {
        let line = support::command_line(*pid);
        assert!(!line.contains("secret") && !line.contains("remote-debugging"), "{line}");
    }
    // Nothing is written elsewhere: the person's own folders are not even known to it.
    let home = variable(browser.pid(), "HOME");
    assert!(Path::new(&home).starts_with(&profile), "{home}");

    let exit = browser.close().await.unwrap();
    assert!(exit.asked);
    assert!(!profile.exists());
    for pid in pids {
        assert!(!exists(pid), "process {pid} is left");
    }
    assert!(naming(&profile).is_empty());
}

#[tokio::test]
async fn firefox_opens_the_link_and_closes_without_a_trace() {
    let Some(browser) = present(Kind::Firefox) else { return };
    let gpu = support::has_vulkan();
    let expected =
        format!("hash=#token=secret isolated=true gpu={gpu} ml=false stored=nothing referrer=");
    opens_the_link_and_closes_without_a_trace(browser, &expected).await;
}

#[tokio::test]
async fn webkit_opens_the_link_and_closes_without_a_trace() {
    let Some(browser) = present(Kind::WebKit) else { return };
    let expected = "hash=#token=secret isolated=true gpu=false ml=false stored=nothing referrer=";
    opens_the_link_and_closes_without_a_trace(browser, expected).await;
}

#[tokio::test]
async fn webkit_s_display_leaves_no_file_behind() {
    let Some(browser) = present(Kind::WebKit) else { return };
    let _turn = one_at_a_time().await;
    let server = PageServer::start();
    let browser = Launch::new(browser, server.link(), guard()).start().await.unwrap();
    browser.while_running(server.opened()).await.unwrap();
    assert_eq!(with_role(&browser, "display").len(), 1);
    let number = variable(browser.pid(), "DISPLAY").replace(':', "X");
    let socket = Path::new("/tmp/.X11-unix").join(number);
    // Told by its inode, because another display may take the number at once.
    let made = std::fs::metadata(&socket).unwrap().ino();
    browser.close().await.unwrap();
    assert!(std::fs::metadata(&socket).map_or(true, |other| other.ino() != made), "{socket:?}");
}

/// A variable in the environment of a process.
fn variable(pid: u32, name: &str) -> String {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    let mut lines = environment.split('\0').filter_map(|line| line.split_once('='));
    lines.find(|(found, _)| *found == name).unwrap().1.to_owned()
}

#[tokio::test]
async fn firefox_has_no_webgpu_when_it_is_off() {
    let Some(browser) = present(Kind::Firefox) else { return };
    let _turn = one_at_a_time().await;
    let server = PageServer::start();
    let mut launch = Launch::new(browser, server.link(), guard());
    launch.backends = Backends { webgpu: false, webnn: false };
    let browser = launch.start().await.unwrap();
    let seen = browser.while_running(server.opened()).await.unwrap();
    assert!(seen.contains("gpu=false"), "{seen}");
    browser.close().await.unwrap();
}

async fn is_told_with_its_signal_when_it_is_killed(browser: Installed) {
    let _turn = one_at_a_time().await;
    let server = PageServer::start();
    let browser = Launch::new(browser, server.link(), guard()).start().await.unwrap();
    browser.while_running(server.opened()).await.unwrap();
    let (profile, pids) = (browser.profile().to_owned(), everyone(&browser));
    signal(browser.pid(), Signal::KILL);
    let exit = browser.exited().await;
    assert_eq!((exit.ending, exit.asked), (Ending::Signal(9), false));
    until("all processes are gone", || !pids.iter().any(|pid| exists(*pid))).await;
    assert!(!profile.exists());
}

#[tokio::test]
async fn a_killed_firefox_is_told_with_its_signal() {
    let Some(browser) = present(Kind::Firefox) else { return };
    is_told_with_its_signal_when_it_is_killed(browser).await;
}

#[tokio::test]
async fn a_killed_webkit_is_told_with_its_signal() {
    let Some(browser) = present(Kind::WebKit) else { return };
    is_told_with_its_signal_when_it_is_killed(browser).await;
}

async fn a_killed_guard_takes_it_along(browser: Installed) {
    let _turn = one_at_a_time().await;
    let server = PageServer::start();
    let browser = Launch::new(browser, server.link(), guard()).start().await.unwrap();
    browser.while_running(server.opened()).await.unwrap();
    let (profile, pids) = (browser.profile().to_owned(), everyone(&browser));
    signal(browser.guard_pid(), Signal::KILL);
    assert_eq!(browser.exited().await.ending, Ending::GuardLost);
    until("all processes have ended", || !pids.iter().any(|pid| runs(*pid))).await;
    until("the profile is gone", || !profile.exists()).await;
}

#[tokio::test]
async fn a_killed_guard_takes_firefox_along() {
    let Some(browser) = present(Kind::Firefox) else { return };
    a_killed_guard_takes_it_along(browser).await;
}

#[tokio::test]
async fn a_killed_guard_takes_webkit_and_its_display_along() {
    let Some(browser) = present(Kind::WebKit) else { return };
    a_killed_guard_takes_it_along(browser).await;
}

/// Says in the environment of this very test which browser to start and be killed with.
const ROLE: &str = "HOLDFAST_TEST_IS_KILLED_WITH";

#[tokio::test]
async fn a_killed_holdfast_leaves_no_firefox() {
    leaves_nothing("a_killed_holdfast_leaves_no_firefox", Kind::Firefox).await;
}

#[tokio::test]
async fn a_killed_holdfast_leaves_no_webkit_and_no_display() {
    leaves_nothing("a_killed_holdfast_leaves_no_webkit_and_no_display", Kind::WebKit).await;
}

async fn leaves_nothing(test: &str, kind: Kind) {
    let Some(browser) = present(kind) else { return };
    if std::env::var_os(ROLE).is_some() {
        return be_killed(browser).await;
    }
    let _turn = one_at_a_time().await;
    let mut holdfast = Holdfast::start(test);
    let (profile, pids) = holdfast.launched();
    assert!(profile.is_dir());
    // WebKit starts helpers that end by themselves.
    assert!(pids.iter().filter(|pid| runs(**pid)).count() > 3, "{pids:?}");
    holdfast.kill();
    until("all processes have ended", || !pids.iter().any(|pid| runs(*pid))).await;
    until("the profile is gone", || !profile.exists()).await;
}

/// Launches a browser, tells of it, and waits for the end.
async fn be_killed(browser: Installed) {
    let server = PageServer::start();
    let browser = Launch::new(browser, server.link(), guard()).start().await.unwrap();
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

async fn a_kept_profile_still_has_what_a_page_stored(browser: Installed) {
    let _turn = one_at_a_time().await;
    let server = PageServer::start();
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("kept");
    for stored in ["nothing", "something"] {
        let mut launch = Launch::new(browser.clone(), server.link(), guard());
        launch.profile = Profile::Keep(profile.clone());
        let running = launch.start().await.unwrap();
        let seen = running.while_running(server.opened()).await.unwrap();
        assert!(seen.contains(&format!("stored={stored}")), "{seen}");
        // Browsers write what a page stored some time after it did.
        until("it is on the disk", || support::stores(&profile)).await;
        running.close().await.unwrap();
        assert!(!profile.join("holdfast-start.html").exists(), "the token is left");
        assert!(naming(&profile).is_empty());
    }
}

#[tokio::test]
async fn firefox_keeps_a_profile() {
    let Some(browser) = present(Kind::Firefox) else { return };
    a_kept_profile_still_has_what_a_page_stored(browser).await;
}

#[tokio::test]
async fn webkit_keeps_a_profile() {
    let Some(browser) = present(Kind::WebKit) else { return };
    a_kept_profile_still_has_what_a_page_stored(browser).await;
}

#[tokio::test]
async fn webkit_with_a_window_needs_a_desktop() {
    let Some(browser) = present(Kind::WebKit) else { return };
    if ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some()) {
        return; // Here it would open a window, which nobody asked for.
    }
    let mut launch = Launch::new(browser, "http://127.0.0.1:1/", guard());
    launch.headless = false;
    let error = launch.start().await.unwrap_err();
    assert!(matches!(error, BrowserError::NoDisplay { .. }), "{error}");
    assert!(error.to_string().contains("apt install xvfb"), "{error}");
}
