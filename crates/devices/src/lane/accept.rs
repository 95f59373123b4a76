//! Takes connections in: the handshake, new lanes, and lanes that come back.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use holdfast_models::Store;
use holdfast_wire::{
    Assembler, FromLane, HELLO_BYTES_LIMIT, Hello, PROTOCOL_VERSION, ToLane, split,
};
use tokio::sync::watch;

use super::connection::Link;
use super::{Lane, LaneOptions, adapter};
use crate::error::ErrorKind;
use crate::secret::{Secret, is_same};

/// All lanes that joined.
pub struct Lanes {
    store: Arc<Store>,
    options: LaneOptions,
    /// Never held while anything is awaited.
    joined: Mutex<Joined>,
    /// Changes whenever a lane joins or goes.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Joined {
    lanes: Vec<Lane>,
    /// How many have joined since the start, which names them.
    count: u64,
}

/// Why a connection was not taken in.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// It did not say hello.
    #[error("the connection did not say hello: {0}")]
    NoHello(String),
    /// It was told why.
    #[error("{0}")]
    Refused(String),
}

/// How long a connection has to say hello.
const HELLO_LIMIT: Duration = Duration::from_secs(15);

/// Requests that a lane may know of when it comes back.
const RESUME_LIMIT: usize = 4096;

/// Lanes that may be there at the same time.
const LANES_LIMIT: usize = 256;

impl Lanes {
    /// No lanes yet.
    pub fn new(store: Arc<Store>, options: LaneOptions) -> Lanes {
        Lanes { store, options, joined: Mutex::default(), changes: watch::channel(0).0 }
    }

    /// How lanes are treated.
    pub fn options(&self) -> &LaneOptions {
        &self.options
    }

    /// The lanes that are there, those that are cut off for the moment included.
    pub fn all(&self) -> Vec<Lane> {
        self.joined().lanes.iter().filter(|lane| lane.gone().is_none()).cloned().collect()
    }

    /// Changes whenever a lane joins or goes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The lane that holds this key to its blobs.
    pub fn by_blob_key(&self, key: &str) -> Option<Lane> {
        let is_it = |lane: &&Lane| is_same(&lane.shared.blob_key, key);
        self.joined().lanes.iter().find(is_it).cloned()
    }

    /// Waits for a lane that `wanted` accepts.
    pub async fn wait_for(&self, wanted: impl Fn(&Lane) -> bool) -> Lane {
        let mut changes = self.changes();
        loop {
            if let Some(lane) = self.all().into_iter().find(&wanted) {
                return lane;
            }
            // The sender lives as long as self.
            let _ = changes.changed().await;
        }
    }

    /// Shakes hands and serves a connection until it ends, and then for as long as the lane may
    /// still come back.
    pub async fn serve(&self, mut link: Link) -> Result<(), JoinError> {
        let mut assembler = Assembler::default();
        let hello =
            match tokio::time::timeout(HELLO_LIMIT, read_hello(&mut link, &mut assembler)).await {
                Ok(Ok(hello)) => hello,
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(JoinError::NoHello("it stayed silent".to_owned())),
            };
        let power = hello.power;
        let (lane, resume) = match self.admit(hello) {
            Ok(admitted) => admitted,
            Err(reason) => {
                let refused = ToLane::Refused { reason: reason.clone() };
                for bytes in split(0, &refused, &[]).into_iter().flatten().flatten() {
                    // The socket may be closed already; then nobody wants to know.
                    let _ = link.outgoing.send(bytes).await;
                }
                return Err(JoinError::Refused(reason));
            }
        };
        lane.note_power(power);
        let opened = lane.open(resume.as_ref(), link.frame_bytes);
        // Only now can it be heard, which is what others wait for.
        self.changed();
        lane.serve(link, assembler, opened).await;
        if lane.gone().is_some() {
            self.joined().lanes.retain(|other| !Arc::ptr_eq(&other.shared, &lane.shared));
            self.changed();
        }
        Ok(())
    }

    /// Finds the lane that came back, or makes a new one. The error is for the page.
    fn admit(&self, mut hello: Hello) -> Result<(Lane, Option<holdfast_wire::Resume>), String> {
        adapter::clean(&mut hello);
        if hello.protocol != PROTOCOL_VERSION {
            return Err(format!(
                "This page speaks version {} of the protocol and Holdfast {} speaks version \
                 {PROTOCOL_VERSION}. Reload the page.",
                hello.protocol,
                env!("CARGO_PKG_VERSION"),
            ));
        }
        if !adapter::is_there(&hello) {
            let backend = hello.backend.name();
            return Err(format!("This lane is to compute on {backend}, which it says is missing."));
        }
        if hello.resume.as_ref().is_some_and(|resume| resume.requests.len() > RESUME_LIMIT) {
            return Err(format!("This lane claims to know more than {RESUME_LIMIT} requests."));
        }
        let mut joined = self.joined();
        if let Some(resume) = hello.resume.take() {
            let came_back = joined.lanes.iter().find(|lane| {
                lane.gone().is_none() && is_same(&lane.shared.session, &resume.session)
            });
            if let Some(lane) = came_back {
                return Ok((lane.clone(), Some(resume)));
            }
        }
        // A page that was loaded anew has forgotten its lanes; they need not be waited for.
        let replaced = joined.lanes.iter().find(|lane| {
            let other = lane.hello();
            other.page == hello.page && other.lane == hello.lane && !lane.is_connected()
        });
        if let Some(lane) = replaced {
            lane.end("its page was loaded anew", ErrorKind::StateLost);
        }
        joined.lanes.retain(|lane| lane.gone().is_none());
        if joined.lanes.len() >= LANES_LIMIT {
            return Err(format!("{LANES_LIMIT} lanes have joined already, which is the limit."));
        }
        joined.count += 1;
        let browser = hello.browser.name.to_lowercase().replace(' ', "-");
        let name = format!("{browser}-{}/{}", joined.count, hello.backend.name());
        let lane =
            Lane::new(name, secret(), secret(), hello, self.store.clone(), self.options.clone());
        joined.lanes.push(lane.clone());
        Ok((lane, None))
    }

    fn joined(&self) -> MutexGuard<'_, Joined> {
        super::lock(&self.joined)
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

async fn read_hello(
    link: &mut Link,
    assembler: &mut Assembler<FromLane>,
) -> Result<Hello, JoinError> {
    let frame = link.incoming.recv().await;
    let frame = frame.unwrap_or_else(|| Err("it closed".to_owned()));
    let frame = frame.map_err(JoinError::NoHello)?;
    // Who has not said hello gets no more memory than one needs.
    if frame.len() > HELLO_BYTES_LIMIT {
        let why = format!("its first frame has {} bytes", frame.len());
        return Err(JoinError::NoHello(why));
    }
    match assembler.push(frame).map_err(|error| JoinError::NoHello(error.to_string()))? {
        Some((FromLane::Hello(hello), body)) if body.is_empty() => Ok(*hello),
        _ => Err(JoinError::NoHello("it said something else first".to_owned())),
    }
}

/// What nobody can guess.
pub(crate) fn secret() -> String {
    Secret::random().reveal().to_owned()
}
