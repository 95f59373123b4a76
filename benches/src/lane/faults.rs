//! What breaks a lane, on purpose and at a moment of our choosing.

use anyhow::{Context, Result, bail, ensure};
use holdfast_browsers::Browser;
use holdfast_devtools::{ARGUMENT, DevTools, Target};
use holdfast_wire::Backend;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::proxy::Proxy;
use super::rig::{self, Rig};

/// A way to lose a lane's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `GPUDevice.destroy` in the engine worker.
    DeviceDestroyed,
    /// SIGKILL to the browser's GPU process.
    GpuProcessKilled,
    /// A loop without end in the engine worker.
    EngineHung,
    /// The TCP connection of the socket, in the middle of whatever it carries.
    SocketCut,
}

impl Kind {
    pub(super) const ALL: [Kind; 4] =
        [Kind::DeviceDestroyed, Kind::GpuProcessKilled, Kind::EngineHung, Kind::SocketCut];

    pub(super) fn id(self) -> &'static str {
        match self {
            Kind::DeviceDestroyed => "W6.device",
            Kind::GpuProcessKilled => "W6.process",
            Kind::EngineHung => "W6.hang",
            Kind::SocketCut => "W6.socket",
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::DeviceDestroyed => "GPU device destroyed",
            Kind::GpuProcessKilled => "GPU process killed",
            Kind::EngineHung => "engine worker hung",
            Kind::SocketCut => "socket cut",
        }
    }

    pub(super) fn backend(self) -> Backend {
        match self {
            Kind::DeviceDestroyed | Kind::GpuProcessKilled => Backend::Webgpu,
            Kind::EngineHung | Kind::SocketCut => Backend::Wasm,
        }
    }
}

/// A browser in which things can be broken.
pub(super) struct Breakable {
    pub(super) browser: Browser,
    kind: Kind,
    devtools: DevTools,
    proxy: Proxy,
}

/// A fault that is ready to happen.
pub(super) enum Armed {
    /// An array of the GPU devices of the engine worker.
    Devices(Target, String),
    Process(Pid),
    Worker(Target),
    Socket,
}

impl Breakable {
    pub(super) async fn start(rig: &Rig, kind: Kind) -> Result<Breakable> {
        let proxy = Proxy::start(rig.server.address()).await?;
        let link = rig.link(kind.backend());
        let link = if kind == Kind::SocketCut { proxy.link(&link) } else { link };
        let mut launch = rig::launch(&link)?;
        launch.extra_arguments.push(ARGUMENT.to_owned());
        if kind == Kind::GpuProcessKilled {
            // A browser whose GPU process keeps dying gives up on it, and blocks the page from
            // it. Here they die by our hand, fifty times in a row.
            launch.extra_arguments.push("--disable-gpu-process-crash-limit".to_owned());
            launch.extra_arguments.push("--disable-domain-blocking-for-3d-apis".to_owned());
        }
        let browser = launch.start().await?;
        let devtools = DevTools::connect(browser.profile()).await?;
        Ok(Breakable { browser, kind, devtools, proxy })
    }

    /// Prepares the next fault, so that it can happen at once when it is to. The lane has run
    /// something, so its engine is there.
    pub(super) async fn arm(&self) -> Result<Armed> {
        match self.kind {
            Kind::DeviceDestroyed => {
                let worker = self.engine().await?;
                let prototype = json!({ "expression": "GPUDevice.prototype" });
                let prototype = self.call(&worker, "Runtime.evaluate", prototype).await?;
                let of = json!({ "prototypeObjectId": prototype["result"]["objectId"] });
                let found = self.call(&worker, "Runtime.queryObjects", of).await?;
                let devices = found["objects"]["objectId"].as_str().context("no devices")?;
                Ok(Armed::Devices(worker, devices.to_owned()))
            }
            Kind::GpuProcessKilled => {
                let processes = self.browser.processes();
                let gpu = processes.iter().find(|process| process.role == "gpu-process");
                let pid = gpu.and_then(|gpu| Pid::from_raw(i32::try_from(gpu.pid).ok()?));
                Ok(Armed::Process(pid.context("the browser has no GPU process")?))
            }
            Kind::EngineHung => Ok(Armed::Worker(self.engine().await?)),
            Kind::SocketCut => Ok(Armed::Socket),
        }
    }

    /// Lets it happen. `chance` is any number.
    pub(super) async fn strike(&self, armed: Armed, chance: u64) -> Result<()> {
        match armed {
            Armed::Devices(worker, devices) => {
                let destroy =
                    "function () { for (const each of this) each.destroy(); return this.length; }";
                let call = json!({
                    "objectId": devices, "functionDeclaration": destroy, "returnByValue": true,
                });
                let done = self.call(&worker, "Runtime.callFunctionOn", call).await?;
                let count = done["result"]["value"].as_u64().unwrap_or_default();
                ensure!(count > 0, "the engine had no GPU device: {done}");
            }
            Armed::Process(pid) => kill_process(pid, Signal::KILL)?,
            // In a task of the worker itself: one of the debugger keeps the worker alive, whatever
            // the page does to end it.
            Armed::Worker(worker) => {
                self.devtools.start(&worker, "setTimeout(() => { for (;;) {} }, 0)");
            }
            Armed::Socket => self.proxy.cut_after(chance % 100_000).await,
        }
        Ok(())
    }

    async fn engine(&self) -> Result<Target> {
        Ok(self.devtools.target("worker", "engine-worker").await?)
    }

    async fn call(&self, worker: &Target, method: &str, parameters: Value) -> Result<Value> {
        let answer = self.devtools.call(Some(worker), method, parameters).await?;
        match answer.get("exceptionDetails") {
            Some(exception) => bail!("{method} failed: {exception}"),
            None => Ok(answer),
        }
    }
}
