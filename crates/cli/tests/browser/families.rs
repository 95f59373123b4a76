//! Firefox and WebKit join like Chromium, and give the right answers.

use std::path::Path;

use holdfast_browsers::{Browser, Installed, Kind};
use holdfast_devices::Device;
use holdfast_devices::cpu::Target;
use holdfast_wire::{Backend, WebGpuInfo};

use crate::computing::{bert_inputs, inputs, keeps_tensors};
use crate::rig::{MINILM, Rig, assert_close, run, tiny_bert, within};

#[path = "../../../browsers/tests/support/present.rs"]
pub(crate) mod present;
use present::present;

/// Joins, runs a tiny model and MiniLM on WebAssembly, and keeps tensors.
async fn computes_on_webassembly(installed: Installed, name: &str, is_threaded: bool) {
    let rig = Rig::new().await;
    let browser = rig.browser_of(installed).await;
    let lane = joined(&rig, &browser, Backend::Wasm).await;
    let info = lane.info();
    assert_eq!((info.backend.as_str(), info.accelerated), ("wasm", false));
    assert!(info.engine.contains(name), "{}", info.engine);
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(lane.hello().wasm.threads > 1, is_threaded && cores > 1);

    let graph = rig.import("bert", &tiny_bert());
    let tiny = bert_inputs(&rig, &graph);
    let segment = rig.segment(&graph, Target::Wasm, &[]).await;
    let loaded = within("a load", lane.load(segment)).await.unwrap();
    assert_close(&run(&lane, &loaded, &tiny).await, &rig.expected(&graph, &tiny).await, 1e-4);
    keeps_tensors(&rig, &lane).await;

    let graph = rig.import_third_party(MINILM);
    let segment = rig.segment(&graph, Target::Wasm, &[]).await;
    let loaded = within("a load", lane.load(segment)).await.unwrap();
    for tokens in [1, 12, 40] {
        let inputs = inputs::minilm_inputs(2, tokens);
        let found = run(&lane, &loaded, &inputs).await;
        assert_close(&found, &rig.expected(&graph, &inputs).await, 1e-4);
    }
    let profile = browser.profile().to_owned();
    browser.close().await.unwrap();
    assert!(!profile.exists());
}

/// A lane on a backend, or why there will be none.
async fn joined(rig: &Rig, browser: &Browser, backend: Backend) -> holdfast_devices::lane::Lane {
    browser.while_running(rig.lane(backend)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn firefox_computes_on_webassembly() {
    let Some(installed) = present(Kind::Firefox) else { return };
    computes_on_webassembly(installed, "Firefox", true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn webkit_computes_on_webassembly() {
    let Some(installed) = present(Kind::WebKit) else { return };
    // It is isolated and still has no shared memory, which must not be counted on.
    computes_on_webassembly(installed, "WebKitGTK", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn firefox_computes_on_webgpu() {
    let Some(installed) = present(Kind::Firefox) else { return };
    let rig = Rig::new().await;
    let browser = rig.browser_of(installed).await;
    if !Path::new("/usr/share/vulkan/icd.d").is_dir() {
        // Without a driver there is no lane for it, and the reason says what to install.
        let lane = joined(&rig, &browser, Backend::Wasm).await;
        let WebGpuInfo::Missing { reason } = &lane.hello().webgpu else { panic!("a GPU?") };
        assert!(reason.contains("mesa-vulkan-drivers"), "{reason}");
        assert!(std::env::var_os("CI").is_none(), "WebGPU of Firefox was not tested: {reason}");
        return present::untested("Firefox on WebGPU", "`apt-get install mesa-vulkan-drivers`");
    }
    let lane = joined(&rig, &browser, Backend::Webgpu).await;
    assert!(lane.info().adapter.contains("software adapter"), "{}", lane.info().adapter);
    let graph = rig.import("bert", &tiny_bert());
    let inputs = bert_inputs(&rig, &graph);
    let dims = [("batch", 1), ("sequence", 8)];
    let segment = rig.segment(&graph, Target::WebGpu, &dims).await;
    let loaded = within("a load", lane.load(segment)).await.unwrap();
    assert_close(&run(&lane, &loaded, &inputs).await, &rig.expected(&graph, &inputs).await, 1e-3);
    keeps_tensors(&rig, &lane).await;
    browser.close().await.unwrap();
}

async fn a_killed_one_comes_back_as_another(installed: Installed) {
    let rig = Rig::new().await;
    let browser = rig.browser_of(installed.clone()).await;
    let lane = joined(&rig, &browser, Backend::Wasm).await;
    let profile = browser.profile().to_owned();
    let pid = browser.pid().to_string();
    assert!(std::process::Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
    within("its end", browser.exited()).await;
    browser.close().await.unwrap();
    assert!(!profile.exists());
    within("the line to be cut", async {
        while lane.is_connected() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    let browser = rig.browser_of(installed).await;
    assert_ne!(joined(&rig, &browser, Backend::Wasm).await.hello().page, lane.hello().page);
    browser.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_firefox_is_noticed_and_another_one_joins() {
    let Some(installed) = present(Kind::Firefox) else { return };
    a_killed_one_comes_back_as_another(installed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_webkit_is_noticed_and_another_one_joins() {
    let Some(installed) = present(Kind::WebKit) else { return };
    a_killed_one_comes_back_as_another(installed).await;
}
