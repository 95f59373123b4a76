//! A device on battery, or one that saves data, asks its owner first. DevTools plays the device.

use holdfast_devtools::{DevTools, Target as Place};
use holdfast_wire::Backend;
use serde_json::json;

use crate::rig::{Rig, within};

/// A battery in the place of the real one, which this machine may not have.
const BATTERY: &str = "(() => {
    const battery = Object.assign(new EventTarget(), { charging: CHARGING, level: 0.15 });
    globalThis.testBattery = battery;
    navigator.getBattery = async () => battery;
})()";

struct Scene {
    rig: Rig,
    devtools: DevTools,
    page: Place,
    browser: holdfast_browsers::Browser,
}

impl Scene {
    /// A browser on a page where nothing has joined yet.
    async fn new() -> Scene {
        let rig = Rig::new().await;
        let browser = rig.browser_at(&format!("{}/join", rig.server.origin())).await;
        let devtools = DevTools::connect(&rig.profile()).await.unwrap();
        let page = devtools.target("page", "").await.unwrap();
        let scene = Scene { rig, devtools, page, browser };
        scene.call("Page.enable", json!({})).await;
        scene
            .until("document.querySelector('#headline')?.textContent === 'A link is needed'")
            .await;
        scene
    }

    /// The page is loaded with a battery that charges or not.
    async fn with_battery(is_charging: bool) -> Scene {
        let scene = Scene::new().await;
        let source = BATTERY.replace("CHARGING", if is_charging { "true" } else { "false" });
        scene.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": source })).await;
        scene
    }

    async fn call(&self, method: &str, parameters: serde_json::Value) {
        self.devtools.call(Some(&self.page), method, parameters).await.unwrap();
    }

    /// Opens the link in the tab, with more in it.
    async fn open(&self, more: &str) {
        let url = format!("{}{more}", self.rig.server.join_link());
        // Another link in the same page would only be a change of its hash.
        self.call("Page.navigate", json!({ "url": "about:blank" })).await;
        self.call("Page.navigate", json!({ "url": url })).await;
    }

    /// Waits until an expression is true in the page.
    async fn until(&self, expression: &str) {
        within(expression, async {
            // While the page is being loaded there is nobody to ask.
            while self.devtools.evaluate(&self.page, expression).await.ok() != Some(json!(true)) {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    async fn evaluate(&self, expression: &str) {
        self.devtools.evaluate(&self.page, expression).await.unwrap();
    }

    /// Waits until nothing of the browser is left.
    async fn close(self) {
        self.browser.close().await.unwrap();
    }

    fn lanes(&self) -> usize {
        self.rig.lanes.all().len()
    }
}

const ASKS_ABOUT_BATTERY: &str =
    "document.querySelector('#headline')?.textContent === 'Take part on battery?'
        && document.querySelector('#toggle').textContent === 'Take part'";

#[tokio::test(flavor = "multi_thread")]
async fn on_battery_it_takes_part_only_after_its_owner_said_so() {
    let scene = Scene::with_battery(false).await;
    scene.open("").await;
    scene.until(ASKS_ABOUT_BATTERY).await;
    assert_eq!(scene.lanes(), 0);
    scene.evaluate("document.querySelector('#toggle').click()").await;
    let lane = scene.rig.lane(Backend::Wasm).await;
    assert_eq!(lane.power().on_battery, Some(true));
    assert_eq!((lane.power().battery_level, lane.power().share), (Some(0.15), 0.25));

    // The battery fills up, and the lane says so by itself.
    let charge = "testBattery.level = 0.9; testBattery.dispatchEvent(new Event('levelchange'))";
    scene.evaluate(charge).await;
    within("the lane to tell", async {
        while lane.power().share < 1.0 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!(lane.power().battery_level, Some(0.9));
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plugged_in_it_takes_part_and_asks_when_it_is_unplugged() {
    let scene = Scene::with_battery(true).await;
    scene.open("").await;
    let lane = scene.rig.lane(Backend::Wasm).await;
    assert_eq!((lane.power().on_battery, lane.power().share), (Some(false), 1.0));
    let unplug =
        "testBattery.charging = false; testBattery.dispatchEvent(new Event('chargingchange'))";
    scene.evaluate(unplug).await;
    scene.until(ASKS_ABOUT_BATTERY).await;
    within("the lane to leave", async {
        while lane.gone().is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    // Plugged in again, there is nothing to ask any more.
    scene.evaluate(&unplug.replace("= false", "= true")).await;
    scene.rig.lane(Backend::Wasm).await;
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_nobody_looks_at_offers_half() {
    let scene = Scene::with_battery(true).await;
    scene.open("").await;
    let lane = scene.rig.lane(Backend::Wasm).await;
    assert_eq!((lane.power().hidden, lane.power().share), (false, 1.0));
    // The browser hides a page before it freezes it, and leaves it hidden afterwards.
    for state in ["frozen", "active"] {
        scene.call("Page.setWebLifecycleState", json!({ "state": state })).await;
    }
    within("the lane to tell", async {
        while lane.power().share == 1.0 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!((lane.power().hidden, lane.power().share), (true, 0.5));
    assert!(lane.gone().is_none(), "it still takes part");
    let is_told = "document.querySelector('#detail').textContent.includes('the page is hidden')";
    scene.until(is_told).await;
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_that_tells_nothing_of_its_battery_asks_too() {
    let scene = Scene::new().await;
    // As Safari and Firefox are on phones.
    let mute = "delete Navigator.prototype.getBattery; delete Navigator.prototype.userAgentData";
    scene.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": mute })).await;
    let phone = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 \
                 (KHTML, like Gecko) Version/18.0 Mobile/15E148 Safari/604.1";
    scene.call("Emulation.setUserAgentOverride", json!({ "userAgent": phone })).await;
    scene.open("").await;
    scene.until(ASKS_ABOUT_BATTERY).await;
    assert_eq!(scene.lanes(), 0);
    scene.evaluate("document.querySelector('#toggle').click()").await;
    let lane = scene.rig.lane(Backend::Wasm).await;
    assert_eq!(lane.power().on_battery, None, "what is not known is not made up");
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_that_holdfast_started_is_not_asked() {
    let scene = Scene::with_battery(false).await;
    scene.open("&page=started-by-holdfast").await;
    let lane = scene.rig.lane(Backend::Wasm).await;
    assert_eq!((lane.power().on_battery, lane.power().share), (Some(true), 1.0));
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_saves_data_takes_part_only_after_its_owner_said_so() {
    let scene = Scene::new().await;
    scene.call("Emulation.setDataSaverOverride", json!({ "dataSaverEnabled": true })).await;
    scene.open("").await;
    let question =
        "document.querySelector('#headline')?.textContent === 'Take part with your data?'";
    scene.until(question).await;
    assert_eq!(scene.lanes(), 0);
    scene.evaluate("document.querySelector('#toggle').click()").await;
    let lane = scene.rig.lane(Backend::Wasm).await;
    assert!(lane.power().saves_data);
    scene.close().await;
}
