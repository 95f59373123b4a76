//! A line that can be cut: a TCP proxy in front of the server.
//!
//! The server answers only to its own name, so the proxy puts the server's port in the place of
//! its own in what the browser sends. Both have five digits, so no length changes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;

pub(crate) struct Proxy {
    port: u16,
    server: u16,
    cut: broadcast::Sender<()>,
    open: Arc<AtomicBool>,
}

impl Proxy {
    pub(crate) async fn start(server: SocketAddr) -> Proxy {
        let listener = loop {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            if listener.local_addr().unwrap().port() >= 10_000 {
                break listener;
            }
        };
        assert!(server.port() >= 10_000, "ports for the taking have five digits");
        let port = listener.local_addr().unwrap().port();
        let (cut, open) = (broadcast::channel(1).0, Arc::new(AtomicBool::new(true)));
        let proxy = Proxy { port, server: server.port(), cut: cut.clone(), open: open.clone() };
        tokio::spawn(async move {
            while let Ok((browser, _)) = listener.accept().await {
                if open.load(Ordering::Relaxed) {
                    tokio::spawn(forward(browser, server, port, cut.subscribe()));
                }
            }
        });
        proxy
    }

    /// The server's link, through the proxy.
    pub(crate) fn link(&self, link: &str) -> String {
        link.replace(&format!(":{}/", self.server), &format!(":{}/", self.port))
    }

    /// Cuts every connection, in the middle of whatever it carries.
    pub(crate) fn cut(&self) {
        let _ = self.cut.send(());
    }

    /// Lets new connections through, or not.
    pub(crate) fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::Relaxed);
    }
}

async fn forward(
    browser: TcpStream,
    server: SocketAddr,
    own_port: u16,
    mut cut: broadcast::Receiver<()>,
) {
    let Ok(upstream) = TcpStream::connect(server).await else { return };
    let (mut from_browser, mut to_browser) = browser.into_split();
    let (mut from_server, mut to_server) = upstream.into_split();
    let up = async {
        let (own, real) = (format!(":{own_port}"), format!(":{}", server.port()));
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from_browser.read(&mut buffer).await {
            let piece = &mut buffer[..length];
            for at in 0..length.saturating_sub(own.len() - 1) {
                if piece[at..].starts_with(own.as_bytes()) {
                    piece[at..at + real.len()].copy_from_slice(real.as_bytes());
                }
            }
            if to_server.write_all(piece).await.is_err() {
                break;
            }
        }
    };
    let down = tokio::io::copy(&mut from_server, &mut to_browser);
    tokio::select! {
        () = up => {}
        _ = down => {}
        _ = cut.recv() => {}
    }
}
