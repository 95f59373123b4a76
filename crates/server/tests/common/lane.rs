//! A lane by a script: says over a real socket what a test wants it to say.

use std::net::SocketAddr;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use holdfast_wire::{
    Assembler, Backend, BrowserInfo, FromLane, Hello, MachineInfo, OutputTensor, PROTOCOL_VERSION,
    PowerInfo, Resume, StepTiming, StorageInfo, StorageKind, TensorSlice, ToLane, WasmInfo,
    WebGpuInfo, WebNnInfo, WeightTraffic, Welcome, split,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::{Scene, within};

/// A lane by a script.
pub(crate) struct ScriptedLane<S = TcpStream> {
    pub(crate) socket: WebSocketStream<S>,
    assembler: Assembler<ToLane>,
    messages: u32,
}

/// Opens a socket with these subprotocols and this origin.
pub(crate) async fn open(
    address: SocketAddr,
    protocols: &str,
    origin: Option<&str>,
) -> Result<ScriptedLane, Error> {
    let stream = TcpStream::connect(address).await.unwrap();
    open_over(stream, &format!("ws://{address}/lane"), protocols, origin).await
}

/// Opens a socket over a connection that is there.
pub(crate) async fn open_over<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    to: &str,
    protocols: &str,
    origin: Option<&str>,
) -> Result<ScriptedLane<S>, Error> {
    within(async {
        let mut request = to.into_client_request()?;
        let headers = request.headers_mut();
        headers.insert("sec-websocket-protocol", protocols.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert("origin", origin.parse().unwrap());
        }
        let unlimited = WebSocketConfig::default().max_frame_size(None).max_message_size(None);
        let (socket, response) = client_async_with_config(request, stream, Some(unlimited)).await?;
        assert_eq!(response.headers()["sec-websocket-protocol"], "holdfast.v1");
        Ok(ScriptedLane { socket, assembler: Assembler::default(), messages: 0 })
    })
    .await
}

impl ScriptedLane<TcpStream> {
    /// A socket that has not said hello.
    pub(crate) async fn open(scene: &Scene) -> ScriptedLane {
        let protocols = format!("holdfast.v1, holdfast.token.{}", scene.token());
        open(scene.address(), &protocols, Some(&scene.server.origin())).await.unwrap()
    }

    /// A lane that is welcome.
    pub(crate) async fn join(scene: &Scene) -> (ScriptedLane, Welcome) {
        ScriptedLane::greet(scene, hello()).await
    }

    /// A lane that comes back and still knows some requests.
    pub(crate) async fn rejoin(
        scene: &Scene,
        session: &str,
        requests: &[u64],
    ) -> (ScriptedLane, Welcome) {
        let resume = Resume { session: session.to_owned(), requests: requests.to_vec() };
        ScriptedLane::greet(scene, Hello { resume: Some(resume), ..hello() }).await
    }

    async fn greet(scene: &Scene, hello: Hello) -> (ScriptedLane, Welcome) {
        let mut lane = ScriptedLane::open(scene).await;
        lane.say(&FromLane::Hello(Box::new(hello)), &[]).await;
        match lane.hear().await {
            (ToLane::Welcome(welcome), _) => (lane, welcome),
            other => panic!("not welcome: {other:?}"),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> ScriptedLane<S> {
    pub(crate) async fn say(&mut self, message: &FromLane, body: &[Bytes]) {
        self.messages += 1;
        for bytes in split(self.messages, message, body).unwrap().flatten() {
            within(self.socket.send(Message::Binary(bytes))).await.unwrap();
        }
    }

    /// The next message that is neither a ping, which is answered, nor an acknowledgement.
    pub(crate) async fn hear(&mut self) -> (ToLane, Bytes) {
        self.try_hear().await.unwrap_or_else(|close| panic!("closed: {close:?}"))
    }

    /// Why the socket was closed, whatever was said before.
    pub(crate) async fn hear_close(&mut self) -> Option<CloseFrame> {
        loop {
            if let Err(close) = self.try_hear().await {
                return close;
            }
        }
    }

    /// Whether nothing comes before the socket is closed.
    pub(crate) async fn closes_without_a_word(&mut self) -> bool {
        self.try_hear().await.is_err()
    }

    async fn try_hear(&mut self) -> Result<(ToLane, Bytes), Option<CloseFrame>> {
        loop {
            let frame = match within(self.socket.next()).await {
                Some(Ok(Message::Binary(frame))) => frame,
                Some(Ok(Message::Close(close))) => return Err(close),
                Some(Ok(_)) => continue,
                Some(Err(error)) => panic!("the socket broke: {error}"),
                None => return Err(None),
            };
            match self.assembler.push(frame).unwrap() {
                Some((ToLane::Ping { nonce }, _)) => {
                    // The other side may be closing already.
                    let pong = split(0, &FromLane::Pong { nonce }, &[]).unwrap();
                    for bytes in pong.flatten() {
                        let _ = self.socket.send(Message::Binary(bytes)).await;
                    }
                }
                None | Some((ToLane::Ack { .. }, _)) => {}
                Some(message) => return Ok(message),
            }
        }
    }

    /// The number of the load that comes next, which is answered.
    pub(crate) async fn load(&mut self) -> u64 {
        let (ToLane::Load { request, .. }, _) = self.hear().await else { panic!("no load") };
        self.say(&loaded(request), &[]).await;
        request
    }

    /// The number of the run that comes next, which is not answered.
    pub(crate) async fn run(&mut self) -> u64 {
        let (ToLane::Run { request, .. }, _) = self.hear().await else { panic!("no run") };
        request
    }

    /// Answers a run with two numbers.
    pub(crate) async fn answer(&mut self, request: u64, numbers: [f32; 2]) {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.say(&outcome(request, "f32", &[2], 8), &[bytes.into()]).await;
    }
}

pub(crate) fn loaded(request: u64) -> FromLane {
    FromLane::Loaded {
        request,
        traffic: WeightTraffic::default(),
        fetch_ms: 1.0,
        create_ms: 1.0,
        warm_up_ms: None,
        warm_up_error: None,
        placement: None,
    }
}

/// An outcome whose output claims to be this.
pub(crate) fn outcome(request: u64, dtype: &str, dims: &[u64], byte_len: u64) -> FromLane {
    let value = TensorSlice { dtype: dtype.into(), dims: dims.to_vec(), offset: 0, byte_len };
    FromLane::Outcome {
        request,
        outputs: vec![OutputTensor { step: 0, name: "y".into(), value }],
        queued_ms: 0.0,
        steps: vec![StepTiming { run_ms: 1.0, readback_ms: 0.0 }],
        kept: vec![],
    }
}

pub(crate) fn hello() -> Hello {
    Hello {
        protocol: PROTOCOL_VERSION,
        version: "0.1.0".into(),
        page: "page".into(),
        lane: 0,
        backend: Backend::Wasm,
        browser: BrowserInfo {
            name: "Scripted".into(),
            version: "1".into(),
            platform: "Linux".into(),
            mobile: false,
        },
        machine: MachineInfo { cores: 2, memory_gib: None, cross_origin_isolated: true },
        webgpu: WebGpuInfo::Missing { reason: "scripted".into() },
        webnn: WebNnInfo::Missing { reason: "scripted".into() },
        wasm: WasmInfo { simd: true, threads: 2, jspi: true },
        storage: StorageInfo { kind: StorageKind::None, quota_bytes: None, used_bytes: 0 },
        power: PowerInfo::FULL,
        resume: None,
    }
}
