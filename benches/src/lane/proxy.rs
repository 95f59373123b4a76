//! A line that can be cut at any byte: a TCP proxy between the browser and Holdfast.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Longer than the headers of any request here.
const HEAD_LIMIT: usize = 16 << 10;

pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    server: SocketAddr,
    /// Bytes that sockets may still carry, both ways together; `None` for all.
    left: watch::Sender<Option<u64>>,
}

impl Proxy {
    pub(crate) async fn start(server: SocketAddr) -> Result<Proxy> {
        // Ports are rewritten in place, so they have to be of the same length.
        let listener = loop {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let port = listener.local_addr()?.port();
            if port.to_string().len() == server.port().to_string().len() {
                break listener;
            }
        };
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared { server, left: watch::channel(None).0 });
        let accepting = shared.clone();
        let task = tokio::spawn(async move {
            while let Ok((browser, _)) = listener.accept().await {
                let shared = accepting.clone();
                // A connection that ends in an error has ended all the same.
                tokio::spawn(async move { drop(carry(browser, port, &shared).await) });
            }
        });
        Ok(Proxy { port, shared, task })
    }

    /// The same link, by way of this proxy.
    pub(crate) fn link(&self, link: &str) -> String {
        let (from, to) = (format!(":{}", self.shared.server.port()), format!(":{}", self.port));
        link.replacen(&from, &to, 1)
    }

    /// Cuts the lane's socket after so many bytes, and returns when it is cut.
    pub(crate) async fn cut_after(&self, bytes: u64) {
        let mut left = self.shared.left.subscribe();
        self.shared.left.send_replace(Some(bytes));
        // Taken back by the connection that was cut.
        let _ = left.wait_for(Option::is_none).await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Carries a connection until either side ends it or it is cut. Requests in it say the proxy's
/// port, and the server is told its own.
async fn carry(browser: TcpStream, port: u16, shared: &Shared) -> Result<()> {
    browser.set_nodelay(true)?;
    let server = TcpStream::connect(shared.server).await?;
    server.set_nodelay(true)?;
    let (mut from_browser, mut to_browser) = browser.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let is_socket = AtomicBool::new(false);
    let up = async {
        while !is_socket.load(Ordering::Relaxed) {
            let head = read_head(&mut from_browser).await?;
            if head.is_empty() {
                return Ok(());
            }
            let asks_for_socket = head.to_ascii_lowercase().contains("upgrade: websocket");
            is_socket.store(asks_for_socket, Ordering::Relaxed);
            let own = format!(":{}", shared.server.port());
            to_server.write_all(head.replace(&format!(":{port}"), &own).as_bytes()).await?;
        }
        pass(&mut from_browser, &mut to_server, shared, &is_socket).await
    };
    let down = pass(&mut from_server, &mut to_browser, shared, &is_socket);
    tokio::select! { ended = up => ended, ended = down => ended }
}

/// The head of a request; requests here have no body. Empty at the end of the connection.
async fn read_head(from: &mut OwnedReadHalf) -> Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < HEAD_LIMIT, "a head without an end");
        if from.read_buf(&mut head).await? == 0 {
            return Ok(String::new());
        }
    }
    Ok(String::from_utf8(head)?)
}

async fn pass(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    shared: &Shared,
    is_socket: &AtomicBool,
) -> Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        let allowed = if is_socket.load(Ordering::Relaxed) { shared.take(read) } else { read };
        to.write_all(&buffer[..allowed]).await?;
        if allowed < read {
            shared.left.send_replace(None);
            return Ok(());
        }
    }
}

impl Shared {
    /// How many of these bytes may pass.
    fn take(&self, bytes: usize) -> usize {
        let mut allowed = bytes;
        self.left.send_if_modified(|left| {
            if let Some(left) = left {
                allowed = bytes.min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= allowed as u64;
            }
            // Only the cut itself is worth waking anyone.
            false
        });
        allowed
    }
}
