//! A tab that crashes is told from everything else that can happen to a browser.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use holdfast_browsers::{Browser, Installed, Kind, Launch, Tab};
use rustix::process::Signal;
use support::page::PageServer;
use support::present::present;
use support::{LIMIT, chromium, exists, guard, one_at_a_time, runs, signal, until, with_role};

/// A browser whose page has computed a little.
async fn start(installed: Installed, server: &PageServer) -> Browser {
    let browser = Launch::new(installed, server.busy_link(), guard()).start().await.unwrap();
    browser.while_running(server.opened()).await.unwrap();
    browser
}

async fn a_crashed_tab_is_told(installed: Installed) {
    let _turn = one_at_a_time().await;
    let server = PageServer::start();
    let browser = start(installed, &server).await;
    let mut watch = browser.watch();
    let health = watch.look();
    assert_eq!(health.tab, Tab::Alive);
    assert!(health.memory_bytes.unwrap() > 50 << 20);

    let page = watch.page_pid().unwrap();
    // What others run in may end. Not tried with WebKit, whose page falls silent with any of them.
    let others = with_role(&browser, "renderer").into_iter().filter(|pid| *pid != page);
    for other in others.filter(|_| browser.kind() != Kind::WebKit) {
        // It may have ended by itself meanwhile.
        if exists(other) {
            signal(other, Signal::KILL);
            until("it has ended", || !runs(other)).await;
        }
    }
    server.ticks().await;
    assert_eq!(watch.look().tab, Tab::Alive);

    // That the page falls silent shows that it was the right process.
    signal(page, Signal::KILL);
    tokio::time::timeout(LIMIT, watch.crashed()).await.unwrap();
    assert_eq!(watch.look().tab, Tab::Crashed);
    server.is_silent().await;
    assert!(runs(browser.pid()), "the browser has ended too");
    browser.close().await.unwrap();
    assert_eq!(browser.watch().look().tab, Tab::Unknown);
}

#[tokio::test]
async fn a_crashed_tab_of_chromium_is_told() {
    a_crashed_tab_is_told(chromium()).await;
}

#[tokio::test]
async fn a_crashed_tab_of_firefox_is_told() {
    let Some(installed) = present(Kind::Firefox) else { return };
    a_crashed_tab_is_told(installed).await;
}

#[tokio::test]
async fn a_crashed_tab_of_webkit_is_told() {
    let Some(installed) = present(Kind::WebKit) else { return };
    a_crashed_tab_is_told(installed).await;
}

#[tokio::test]
async fn a_server_that_goes_away_is_no_crash() {
    let _turn = one_at_a_time().await;
    let server = PageServer::start();
    let browser = start(chromium(), &server).await;
    let mut watch = browser.watch();
    assert_eq!(watch.look().tab, Tab::Alive);
    drop(server);
    assert_eq!(watch.look().tab, Tab::Alive);
    browser.close().await.unwrap();
}

#[tokio::test]
async fn a_browser_that_is_killed_has_not_just_lost_its_tab() {
    let _turn = one_at_a_time().await;
    let server = PageServer::start();
    let browser = start(chromium(), &server).await;
    let mut watch = browser.watch();
    assert_eq!(watch.look().tab, Tab::Alive);
    signal(browser.pid(), Signal::KILL);
    browser.exited().await;
    assert_eq!(watch.look().tab, Tab::Unknown);
}
