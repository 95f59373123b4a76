//! Remote control of a Chromium, for tests and benchmarks that break things in it on purpose or
//! look at its page. Holdfast itself never opens a browser to this.
//!
//! Start the browser with `--remote-debugging-port=0` as an extra argument; the port is then
//! written into its profile.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_tungstenite::tungstenite::Message;

/// The argument that opens a browser to remote control.
pub const ARGUMENT: &str = "--remote-debugging-port=0";

/// How long the browser has to answer.
const LIMIT: Duration = Duration::from_secs(30);

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[error("DevTools: {0}")]
pub struct DevToolsError(String);

/// A connection to a browser.
pub struct DevTools {
    shared: Arc<Shared>,
}

struct Shared {
    commands: mpsc::UnboundedSender<String>,
    next: AtomicU64,
    answers: Mutex<HashMap<u64, oneshot::Sender<Result<Value, DevToolsError>>>>,
    /// Pages and workers, by session.
    targets: watch::Sender<Vec<Target>>,
    /// The sessions of those that stand still.
    paused: watch::Sender<HashSet<String>>,
}

/// A page or a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    session: String,
    /// `page` or `worker`.
    pub kind: String,
    /// Its address.
    pub url: String,
}

impl DevTools {
    /// Connects to the browser that runs on a profile.
    pub async fn connect(profile: &Path) -> Result<DevTools, DevToolsError> {
        let file = profile.join("DevToolsActivePort");
        let address = within("the port", async {
            loop {
                let text = std::fs::read_to_string(&file).unwrap_or_default();
                if let Some((port, path)) = text.split_once('\n') {
                    return format!("ws://127.0.0.1:{port}{path}");
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await?;
        let connect = tokio_tungstenite::connect_async(address);
        let (socket, _) = within("the socket", connect).await?.map_err(broken)?;
        let (mut sink, mut stream) = socket.split();
        let (commands, mut waiting) = mpsc::unbounded_channel::<String>();
        let shared = Arc::new(Shared {
            commands,
            next: AtomicU64::new(1),
            answers: Mutex::default(),
            targets: watch::channel(Vec::new()).0,
            paused: watch::channel(HashSet::new()).0,
        });
        tokio::spawn(async move {
            while let Some(text) = waiting.recv().await {
                if sink.send(Message::text(text)).await.is_err() {
                    break;
                }
            }
        });
        let hearing = Arc::downgrade(&shared);
        tokio::spawn(async move {
            while let Some(Ok(message)) = stream.next().await {
                let (Some(shared), Ok(text)) = (hearing.upgrade(), message.to_text()) else {
                    break;
                };
                if let Ok(value) = serde_json::from_str(text) {
                    shared.hear(value);
                }
            }
        });
        let devtools = DevTools { shared };
        devtools.call(None, "Target.setAutoAttach", attach()).await?;
        Ok(devtools)
    }

    /// Waits for a page or worker whose kind and address fit.
    pub async fn target(&self, kind: &str, url: &str) -> Result<Target, DevToolsError> {
        let fits = |target: &&Target| target.kind == kind && target.url.contains(url);
        let mut targets = self.shared.targets.subscribe();
        let found = targets.wait_for(|targets| targets.iter().any(|target| fits(&target)));
        let found = within("a target", found).await?.map_err(broken)?;
        found.iter().rfind(fits).cloned().ok_or_else(|| DevToolsError("the target is gone".into()))
    }

    /// Evaluates an expression, and waits for it if it is a promise.
    pub async fn evaluate(
        &self,
        target: &Target,
        expression: &str,
    ) -> Result<Value, DevToolsError> {
        let parameters = json!({
            "expression": expression,
            "awaitPromise": true,
            "returnByValue": true,
        });
        let answer = self.call(Some(target), "Runtime.evaluate", parameters).await?;
        match answer.get("exceptionDetails") {
            Some(exception) => Err(DevToolsError(exception.to_string())),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    /// Starts an expression that never ends, or does not matter.
    pub fn start(&self, target: &Target, expression: &str) {
        let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let parameters = json!({ "expression": expression });
        self.shared.send(number, Some(target), "Runtime.evaluate", parameters);
    }

    /// Makes a target stand still, once it is about to do something: nothing runs in it until it is
    /// resumed.
    pub async fn pause(&self, target: &Target) -> Result<(), DevToolsError> {
        self.call(Some(target), "Debugger.enable", json!({})).await?;
        self.call(Some(target), "Debugger.pause", json!({})).await?;
        self.start(target, "0");
        let mut paused = self.shared.paused.subscribe();
        let stands_still = paused.wait_for(|paused| paused.contains(&target.session));
        within("a target to stand still", stands_still).await?.map_err(broken)?;
        Ok(())
    }

    /// Lets a target go on that was paused.
    pub async fn resume(&self, target: &Target) -> Result<(), DevToolsError> {
        self.call(Some(target), "Debugger.resume", json!({})).await.map(drop)
    }

    /// Asks a target anything.
    pub async fn call(
        &self,
        target: Option<&Target>,
        method: &str,
        parameters: Value,
    ) -> Result<Value, DevToolsError> {
        let (answer, answered) = oneshot::channel();
        let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
        self.shared.answers().insert(number, answer);
        self.shared.send(number, target, method, parameters);
        within(method, answered).await?.map_err(broken)?
    }

    /// A picture of the page, in PNG, as base64.
    pub async fn screenshot(
        &self,
        page: &Target,
        width: u32,
        height: u32,
    ) -> Result<String, DevToolsError> {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call(Some(page), "Emulation.setDeviceMetricsOverride", size).await?;
        let picture =
            self.call(Some(page), "Page.captureScreenshot", json!({ "format": "png" })).await?;
        Ok(picture["data"].as_str().unwrap_or_default().to_owned())
    }
}

impl Shared {
    fn send(&self, number: u64, target: Option<&Target>, method: &str, parameters: Value) {
        let mut command = json!({ "id": number, "method": method, "params": parameters });
        if let Some(target) = target {
            command["sessionId"] = json!(target.session);
        }
        // Where the browser is gone, no answer comes, and waiting for it ends.
        let _ = self.commands.send(command.to_string());
    }

    fn hear(&self, message: Value) {
        if let Some(number) = message["id"].as_u64() {
            if let Some(answer) = self.answers().remove(&number) {
                let result = match message.get("error") {
                    Some(error) => Err(DevToolsError(error.to_string())),
                    None => Ok(message["result"].clone()),
                };
                let _ = answer.send(result);
            }
            return;
        }
        let parameters = &message["params"];
        let of = || message["sessionId"].as_str().unwrap_or_default().to_owned();
        let session = parameters["sessionId"].as_str().unwrap_or_default().to_owned();
        match message["method"].as_str() {
            Some("Target.attachedToTarget") => {
                let info = &parameters["targetInfo"];
                let text = |key: &str| info[key].as_str().unwrap_or_default().to_owned();
                let target = Target { session, kind: text("type"), url: text("url") };
                // Workers of the page, and workers of those.
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                self.send(number, Some(&target), "Target.setAutoAttach", attach());
                self.targets.send_modify(|targets| targets.push(target));
            }
            Some("Target.detachedFromTarget") => {
                self.targets
                    .send_modify(|targets| targets.retain(|target| target.session != session));
            }
            Some("Debugger.paused") => {
                self.paused.send_if_modified(|paused| paused.insert(of()));
            }
            Some("Debugger.resumed") => {
                self.paused.send_if_modified(|paused| paused.remove(&of()));
            }
            Some("Target.targetInfoChanged") => {
                // A page that went elsewhere keeps its session.
                let info = &parameters["targetInfo"];
                let (kind, url) = (info["type"].as_str(), info["url"].as_str());
                self.targets.send_modify(|targets| {
                    for target in targets.iter_mut().filter(|t| Some(t.kind.as_str()) == kind) {
                        if kind == Some("page") {
                            target.url = url.unwrap_or_default().to_owned();
                        }
                    }
                });
            }
            _ => {}
        }
    }

    fn answers(
        &self,
    ) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Result<Value, DevToolsError>>>> {
        self.answers.lock().expect("no code panics while holding this lock")
    }
}

fn attach() -> Value {
    json!({ "autoAttach": true, "waitForDebuggerOnStart": false, "flatten": true })
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> Result<T, DevToolsError> {
    let waited = tokio::time::timeout(LIMIT, future).await;
    waited.map_err(|_| DevToolsError(format!("waited {} s for {what}", LIMIT.as_secs())))
}

fn broken(error: impl std::fmt::Display) -> DevToolsError {
    DevToolsError(error.to_string())
}
