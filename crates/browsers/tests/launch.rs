//! A real browser is started on a link, and ends when its owner wants it.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use holdfast_browsers::{Backends, BrowserError, Ending, Profile};
use support::page::PageServer;
use support::{everyone, exists, launch, naming, one_at_a_time, until, with_role};

#[tokio::test]
async fn opens_the_link_with_webgpu_and_webnn_and_closes_without_a_trace() {
    let _turn = one_at_a_time().await;
    let server = PageServer::start();
    let browser = launch(&server.link()).start().await.unwrap();
    let seen = browser.while_running(server.opened()).await.unwrap();
    assert_eq!(seen, "hash=#token=secret isolated=true gpu=true ml=true stored=nothing referrer=");
    let profile = browser.profile().to_owned();
    let pids = everyone(&browser);
    assert!(profile.is_dir());
    assert_eq!(with_role(&browser, "browser"), [browser.pid()]);
    assert!(!with_role(&browser, "renderer").is_empty());
    assert!(browser.memory().unwrap() > 50 << 20);

    let exit = browser.close().await.unwrap();
    assert!(exit.asked);
    assert!(!profile.exists());
    for pid in pids {
        assert!(!exists(pid), "process {pid} is left");
    }
    assert!(naming(&profile).is_empty());
    assert!(browser.processes().is_empty());
    assert_eq!(browser.memory(), None);
    assert_eq!(browser.close().await.unwrap(), exit);
}

#[tokio::test]
async fn the_token_is_on_no_command_line() {
    let _turn = one_at_a_time().await;
    let server = PageServer::start();
    let browser = launch(&server.link()).start().await.unwrap();
    browser.while_running(server.opened()).await.unwrap();
    for pid in everyone(&browser) {
        let line = support::command_line(pid);
        assert!(!line.contains("secret"), "{line}");
        assert!(!line.contains("remote-debugging"), "{line}");
    }
    browser.close().await.unwrap();
}

#[tokio::test]
async fn backends_that_are_off_are_not_there() {
    let _turn = one_at_a_time().await;
    let server = PageServer::start();
    let mut launch = launch(&server.link());
    launch.backends = Backends { webgpu: false, webnn: false };
    let browser = launch.start().await.unwrap();
    let seen = browser.while_running(server.opened()).await.unwrap();
    assert!(seen.contains("gpu=false ml=false"), "{seen}");
    browser.close().await.unwrap();
}

#[tokio::test]
async fn dropping_it_ends_it_as_closing_does() {
    let _turn = one_at_a_time().await;
    let server = PageServer::start();
    let browser = launch(&server.link()).start().await.unwrap();
    browser.while_running(server.opened()).await.unwrap();
    let (profile, pids) = (browser.profile().to_owned(), everyone(&browser));
    drop(browser);
    // That they do not even exist means that they are reaped, the guard by this process.
    until("all processes are gone", || !pids.iter().any(|pid| exists(*pid))).await;
    assert!(!profile.exists());
}

#[tokio::test]
async fn a_launch_removes_what_a_killed_one_left_and_nothing_that_is_in_use() {
    let _turn = one_at_a_time().await;
    let server = PageServer::start();
    let browser = launch(&server.link()).start().await.unwrap();
    browser.while_running(server.opened()).await.unwrap();
    let left = tempfile::Builder::new().prefix("holdfast-browser-").tempdir().unwrap().keep();
    std::fs::write(left.join("holdfast-owner"), "").unwrap();
    // How the next one ends does not matter.
    let _ = support::bad_browser("exits-at-once.sh").start().await;
    assert!(!left.exists());
    assert!(browser.profile().join("holdfast-owner").exists());
    browser.close().await.unwrap();
}

#[tokio::test]
async fn a_kept_profile_stays_and_still_has_what_a_page_stored() {
    let _turn = one_at_a_time().await;
    let server = PageServer::start();
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("kept");
    for stored in ["nothing", "something"] {
        let mut launch = launch(&server.link());
        launch.profile = Profile::Keep(profile.clone());
        let browser = launch.start().await.unwrap();
        let seen = browser.while_running(server.opened()).await.unwrap();
        assert!(seen.contains(&format!("stored={stored}")), "{seen}");
        let exit = browser.close().await.unwrap();
        assert!(exit.asked);
        assert!(profile.join("Default").is_dir());
        assert!(!profile.join("holdfast-start.html").exists(), "the token is left");
        assert!(naming(&profile).is_empty());
    }
}

#[tokio::test]
async fn a_kept_profile_can_be_used_again_after_a_kill() {
    let _turn = one_at_a_time().await;
    let server = PageServer::start();
    let folder = tempfile::tempdir().unwrap();
    let mut launch = launch(&server.link());
    launch.profile = Profile::Keep(folder.path().to_owned());
    let browser = launch.clone().start().await.unwrap();
    browser.while_running(server.opened()).await.unwrap();
    support::signal(browser.pid(), rustix::process::Signal::KILL);
    browser.exited().await;
    browser.close().await.unwrap();
    assert!(folder.path().join("Default").is_dir());
    let browser = launch.start().await.unwrap();
    browser.while_running(server.opened()).await.unwrap();
    browser.close().await.unwrap();
}

#[tokio::test]
async fn a_browser_without_a_window_is_not_started_with_one() {
    let mut launch = launch("http://127.0.0.1:1/");
    launch.headless = false;
    let error = launch.start().await.unwrap_err();
    assert!(matches!(error, BrowserError::HeadlessOnly { .. }), "{error}");
}

#[tokio::test]
async fn closing_tells_how_it_ended() {
    let _turn = one_at_a_time().await;
    let server = PageServer::start();
    let browser = launch(&server.link()).start().await.unwrap();
    browser.while_running(server.opened()).await.unwrap();
    let exit = browser.close().await.unwrap();
    assert!(matches!(exit.ending, Ending::Signal(15) | Ending::Code(_)), "{exit}");
}
