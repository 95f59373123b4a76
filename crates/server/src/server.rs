//! A running server: how it starts, what it is called, how it ends.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_devices::Secret;
use holdfast_devices::lane::Lanes;
use holdfast_history::History;
use holdfast_pool::Pool;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::assets::{Assets, find_assets};
use crate::context::Context;
use crate::error::ServerError;
use crate::file::ServerFile;
use crate::listen::{self, Door};
use crate::lock::Lock;
use crate::site::Site;
use crate::tls::{self, Tls};

/// How a server listens.
#[derive(Clone)]
pub struct ServerOptions {
    /// Where; port 0 takes any that is free.
    pub address: SocketAddr,
    /// Needed for every address but loopback.
    pub tls: Option<Tls>,
    /// Names by which others reach this machine; the first stands in the link. If there are
    /// none, what the certificate says, or the address.
    pub names: Vec<String>,
    /// The folder with the join page; looked for where it usually is if not given.
    pub assets: Option<PathBuf>,
    /// The token of the join link; a random one if not given.
    pub token: Option<String>,
    /// Where to leave `server.json`, by which other programs find this server; there is one
    /// server for each. Without it, nobody finds it.
    pub home: Option<PathBuf>,
    /// What runs models for control; without it, control runs none.
    pub pool: Option<Arc<Pool>>,
    /// What was predicted and measured, for control; without it, control has nothing to tell.
    pub history: Option<History>,
    /// What strangers may take.
    pub limits: Limits,
}

impl Default for ServerOptions {
    /// Loopback, on the usual port.
    fn default() -> ServerOptions {
        ServerOptions {
            address: (Ipv4Addr::LOCALHOST, 8765).into(),
            tls: None,
            names: Vec::new(),
            assets: None,
            token: None,
            home: None,
            pool: None,
            history: None,
            limits: Limits::default(),
        }
    }
}

/// What strangers may take before they are turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once, those that became sockets of lanes not counted.
    pub connections: usize,
    /// Sockets that have not said hello yet.
    pub waiting_sockets: usize,
    /// How long a request's headers, or the wait for the next request, may take.
    pub header_time: Duration,
    /// How long something that is sent may wait without any of it being read.
    pub write_time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 512,
            waiting_sockets: 32,
            header_time: Duration::from_secs(15),
            write_time: Duration::from_secs(30),
        }
    }
}

/// A server that listens. To end it, call [`Server::stop`]; dropped, it ends at once.
pub struct Server {
    address: SocketAddr,
    limits: Limits,
    fingerprint: Option<String>,
    context: Arc<Context>,
    file: Option<ServerFile>,
    home: Option<PathBuf>,
    /// For as long as it lives.
    _lock: Option<Lock>,
}

impl Server {
    /// Starts a server for these lanes. It listens when this returns.
    pub async fn start(lanes: Arc<Lanes>, options: ServerOptions) -> Result<Server, ServerError> {
        let ip = options.address.ip();
        if !ip.is_loopback() && options.tls.is_none() {
            return Err(ServerError::NeedsTls(options.address));
        }
        let join_token = match &options.token {
            Some(token) => Secret::parse(token).ok_or(ServerError::Token)?,
            None => Secret::random(),
        };
        let load = |tls| tls::load(tls, &options.names, ip);
        let tls = options.tls.as_ref().map(load).transpose()?;
        let assets = Assets::list(&find_assets(options.assets.as_deref())?)?;
        let lock = match &options.home {
            Some(home) => Some(take(home).await?),
            None => None,
        };
        let listener = TcpListener::bind(options.address).await.map_err(|source| {
            let address = options.address;
            match source.kind() {
                ErrorKind::AddrInUse => ServerError::PortInUse(address),
                _ => ServerError::Listen { address, source },
            }
        })?;
        let address = listener
            .local_addr()
            .map_err(|source| ServerError::Listen { address: options.address, source })?;

        let certificate = tls.as_ref().map(|tls| tls.certificate.clone());
        let name = public_name(&options, certificate.as_ref(), address);
        let site = Arc::new(Site::new(address, name.as_deref(), certificate.clone()));
        if let Some(stray) = options.names.iter().find(|name| !site.goes_by(name)) {
            return Err(ServerError::Name(stray.clone()));
        }
        let fingerprint = certificate.as_ref().map(tls::fingerprint);
        let context = Arc::new(Context {
            lanes,
            pool: options.pool.clone(),
            history: options.history.clone(),
            site: site.clone(),
            assets,
            join_token,
            control_token: Secret::random(),
            started: Instant::now(),
            waiting_sockets: Arc::new(Semaphore::new(options.limits.waiting_sockets)),
            tasks: TaskTracker::new(),
            requests: TaskTracker::new(),
            draining: CancellationToken::new(),
            closing: CancellationToken::new(),
            ended: CancellationToken::new(),
        });
        let (limits, home) = (options.limits, options.home);
        let acceptor = tls.map(|tls| TlsAcceptor::from(tls.config));
        let door = Door { listener, tls: acceptor, site, limits };
        context.spawn(listen::accept(door, context.clone()));
        let file = None;
        let mut server = Server { address, limits, fingerprint, context, file, home, _lock: lock };
        if let Some(home) = &server.home {
            let file = ServerFile {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                pid: std::process::id(),
                origin: server.origin(),
                address: server.control_address(),
                token: server.context.control_token.reveal().to_owned(),
                fingerprint: server.fingerprint(),
            };
            file.write(home)?;
            server.file = Some(file);
        }
        tracing::info!(origin = server.origin(), "Holdfast listens");
        Ok(server)
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Scheme, name and port.
    pub fn origin(&self) -> String {
        self.context.site.origin().to_owned()
    }

    /// The link by which a browser joins.
    pub fn join_link(&self) -> String {
        self.context.join_link()
    }

    /// The link for browsers that are started on this machine. Nobody is there to accept a
    /// certificate in them that was made here, nor need its name lead here: with TLS, this opens a
    /// door without it, on loopback only, which takes the same token.
    pub async fn own_link(&self) -> Result<String, ServerError> {
        if self.fingerprint.is_none() {
            return Ok(self.join_link());
        }
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let failed = |source| ServerError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let site = Arc::new(Site::new(listener.local_addr().map_err(failed)?, None, None));
        let link = self.context.join_link_at(&site);
        let door = Door { listener, tls: None, site, limits: self.limits };
        self.context.spawn(listen::accept(door, self.context.clone()));
        Ok(link)
    }

    /// What opens control.
    pub fn control_token(&self) -> &Secret {
        &self.context.control_token
    }

    /// With TLS: the SHA-256 of the certificate, as browsers show it.
    pub fn fingerprint(&self) -> Option<String> {
        self.fingerprint.clone()
    }

    /// Ends: control takes nothing new; what is under way may finish for at most `patience`, and
    /// browsers are served until then; the lanes are told to leave, and all connections close.
    pub async fn stop(mut self, patience: Duration) {
        self.remove_file();
        self.context.draining.cancel();
        if tokio::time::timeout(patience, self.idle()).await.is_err() {
            tracing::warn!("requests are still under way; they end with an error");
        }
        self.context.closing.cancel();
        for lane in self.context.lanes.all() {
            lane.leave("Holdfast ends", true);
        }
        self.context.tasks.close();
        if tokio::time::timeout(FAREWELL, self.context.tasks.wait()).await.is_err() {
            tracing::debug!("some connections did not close by themselves");
        }
        self.context.ended.cancel();
        self.context.tasks.wait().await;
    }

    /// Waits until nothing is under way.
    async fn idle(&self) {
        self.context.requests.close();
        self.context.requests.wait().await;
        // Programs that have a server inside ask lanes without control.
        let busy = || self.context.lanes.all().iter().any(|lane| lane.in_flight() > 0);
        let mut looks = tokio::time::interval(Duration::from_millis(10));
        while busy() {
            looks.tick().await;
        }
    }

    /// The address for programs on this machine.
    fn control_address(&self) -> SocketAddr {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        address
    }

    fn remove_file(&mut self) {
        if let (Some(file), Some(home)) = (self.file.take(), &self.home) {
            file.remove(home);
        }
    }
}

/// How long connections have to close by themselves after everything was answered.
const FAREWELL: Duration = Duration::from_secs(3);

impl Drop for Server {
    fn drop(&mut self) {
        self.remove_file();
        self.context.closing.cancel();
        self.context.ended.cancel();
    }
}

/// How long one that is starting or ending on the same home is waited for.
const HOME_LIMIT: Duration = Duration::from_secs(2);

/// Makes this the one server of its home.
async fn take(home: &Path) -> Result<Lock, ServerError> {
    let since = Instant::now();
    loop {
        let failed = |source| ServerError::Lock { path: Lock::path(home), source };
        if let Some(lock) = Lock::take(home).map_err(failed)? {
            // Whatever it says, it is of a server that is gone.
            let _ = std::fs::remove_file(ServerFile::path(home));
            return Ok(lock);
        }
        if let Some(ServerFile { origin, pid, .. }) = ServerFile::find(home) {
            return Err(ServerError::Running { origin, pid });
        }
        if since.elapsed() > HOME_LIMIT {
            return Err(ServerError::HomeInUse(home.to_owned()));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The name that others are to call it by, if that is not the address.
fn public_name(
    options: &ServerOptions,
    certificate: Option<&CertificateDer<'_>>,
    address: SocketAddr,
) -> Option<String> {
    if let Some(name) = options.names.first() {
        return Some(name.clone());
    }
    // One that was made here is for the addresses that follow, too.
    if let Some(Tls::Files { .. }) = &options.tls
        && let Some(name) = certificate.and_then(tls::first_name)
    {
        return Some(name);
    }
    if !address.ip().is_unspecified() {
        return None;
    }
    let reachable = tls::reachable(address.ip());
    Some(reachable.first().map_or("localhost".to_owned(), ToString::to_string))
}
