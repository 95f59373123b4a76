//! A browser that comes back downloads nothing again.

use holdfast_devices::cpu::Target;
use holdfast_devices::{Device, ErrorKind, Event};
use holdfast_devtools::DevTools;
use holdfast_wire::Backend;

use crate::computing::bert_inputs;
use crate::rig::{MINILM, Rig, assert_close, run, tiny_bert, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_browser_comes_back_on_its_profile_and_downloads_nothing() {
    let rig = Rig::new().await;
    let graph = rig.import_third_party(MINILM);
    let segment = rig.segment(&graph, Target::Wasm, &[]).await;

    let browser = rig.browser().await;
    let lane = rig.lane(Backend::Wasm).await;
    let loaded = within("a load", lane.load(segment.clone())).await.unwrap();
    assert!(loaded.downloaded_bytes >= loaded.weight_bytes);
    kill(browser.pid());
    browser.exited().await;
    browser.close().await.unwrap();

    let browser = rig.browser().await;
    let lane = rig.lane(Backend::Wasm).await;
    let loaded = within("a load", lane.load(segment)).await.unwrap();
    assert_eq!(loaded.downloaded_bytes, 0);
    browser.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_cache_is_noticed_and_downloaded_again() {
    let rig = Rig::new().await;
    let graph = rig.import("bert", &tiny_bert());
    let inputs = bert_inputs(&rig, &graph);
    let expected = rig.expected(&graph, &inputs).await;
    let segment = rig.segment(&graph, Target::Wasm, &[]).await;
    let browser = rig.browser().await;
    let lane = rig.lane(Backend::Wasm).await;
    let first = within("a load", lane.load(segment.clone())).await.unwrap();
    assert!(first.downloaded_bytes > 0);
    lane.unload(first.id).await.unwrap();

    // Flips the first byte of every file in the origin's private file system.
    let devtools = DevTools::connect(&rig.profile()).await.unwrap();
    let page = devtools.target("page", "/join").await.unwrap();
    let damaged = devtools
        .evaluate(
            &page,
            "(async () => {
                let damaged = 0;
                const visit = async (folder) => {
                    for await (const entry of folder.values()) {
                        if (entry.kind === 'directory') { await visit(entry); continue; }
                        const file = await entry.getFile();
                        if (file.size < 1024) continue;
                        const bytes = new Uint8Array(await file.arrayBuffer());
                        bytes[0] ^= 0xff;
                        const writer = await entry.createWritable();
                        await writer.write(bytes);
                        await writer.close();
                        damaged += 1;
                    }
                };
                await visit(await navigator.storage.getDirectory());
                return damaged;
            })()",
        )
        .await
        .unwrap();
    assert!(damaged.as_u64().unwrap() > 0);

    let again = within("a load", lane.load(segment)).await.unwrap();
    assert_eq!(again.downloaded_bytes, first.downloaded_bytes);
    assert_close(&run(&lane, &again, &inputs).await, &expected, 1e-4);
    browser.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reloaded_page_is_a_new_lane_and_the_old_one_is_gone_at_once() {
    let rig = Rig::new().await;
    let browser = rig.browser().await;
    let lane = rig.lane(Backend::Wasm).await;
    let mut events = lane.events();
    let devtools = DevTools::connect(&rig.profile()).await.unwrap();
    let page = devtools.target("page", "/join").await.unwrap();
    devtools.call(Some(&page), "Page.reload", Default::default()).await.unwrap();
    let gone = async { while !matches!(events.recv().await, Ok(Event::Gone { .. })) {} };
    within("the old lane to be gone", gone).await;
    assert_eq!(lane.stats().await.unwrap_err().kind(), ErrorKind::StateLost);
    let new = rig.lane(Backend::Wasm).await;
    assert_ne!(new.info().name, lane.info().name);
    assert_eq!(new.stats().await.unwrap().segments, 0);
    browser.close().await.unwrap();
}

pub(crate) fn kill(pid: u32) {
    send_signal(pid, "-KILL");
}

/// Sends a signal, named as the program `kill` does.
pub(crate) fn send_signal(pid: u32, signal: &str) {
    assert!(try_signal(pid, signal), "there is no process {pid}");
}

/// The same for a process that may have ended just then: whether it was still there.
pub(crate) fn try_signal(pid: u32, signal: &str) -> bool {
    let pid = pid.to_string();
    std::process::Command::new("kill").args([signal, &pid]).status().unwrap().success()
}
