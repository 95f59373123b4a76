//! A web page for a browser to open, which tells its server what it sees.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Tells what it sees once, and then every 50 ms that it is still there.
const PAGE: &str = r"<!doctype html><meta charset=utf-8><title>test</title><p>test</p><script>
const tell = (words) => fetch('/tell', { method: 'POST', body: words });
(async () => {
  const adapter = await navigator.gpu?.requestAdapter();
  const context = await navigator.ml?.createContext({ deviceType: 'cpu' }).catch(() => null);
  const stored = localStorage.getItem('stored') ?? 'nothing';
  localStorage.setItem('stored', 'something');
  await tell([`hash=${location.hash}`, `isolated=${crossOriginIsolated}`, `gpu=${!!adapter}`,
    `ml=${!!context}`, `stored=${stored}`, `referrer=${document.referrer}`].join(' '));
  setInterval(() => tell('tick'), 50);
})();
</script>";

/// Computes before, as a page that has joined does: so much, and not for so long, because on a busy
/// machine other processes of the browser would have computed more by then.
const BUSY: &str = "<script>{ let x = 1; \
    for (let i = 0; i < 1e9; i++) x = (Math.imul(x, 48271) + i) | 0; window.computed = x; }</script>";

/// Serves the page until it is dropped.
pub struct PageServer {
    address: SocketAddr,
    told: Mutex<UnboundedReceiver<String>>,
    is_over: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
}

impl PageServer {
    pub fn start() -> PageServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, told) = unbounded_channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = is_over.clone();
        let worker = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let sender = sender.clone();
                // A browser opens connections ahead that it may never use.
                std::thread::spawn(move || answer(stream, &sender));
            }
        });
        PageServer { address, told: Mutex::new(told), is_over, worker: Some(worker) }
    }

    pub fn link(&self) -> String {
        format!("http://{}/join#token=secret", self.address)
    }

    /// A link to a page that computes.
    pub fn busy_link(&self) -> String {
        format!("http://{}/busy#token=secret", self.address)
    }

    /// The next thing that the page says.
    pub async fn told(&self) -> String {
        let mut told = self.told.lock().await;
        tokio::time::timeout(super::LIMIT, told.recv()).await.unwrap().unwrap()
    }

    /// What the page saw when it was opened.
    pub async fn opened(&self) -> String {
        loop {
            let words = self.told().await;
            if words != "tick" {
                return words;
            }
        }
    }

    /// Forgets what was said before, and waits for the page to say that it is there.
    pub async fn ticks(&self) {
        while self.told.lock().await.try_recv().is_ok() {}
        self.told().await;
    }
}

impl PageServer {
    /// Waits until nothing more is said: twenty times as long as the page ever pauses.
    pub async fn is_silent(&self) {
        const SILENCE: std::time::Duration = std::time::Duration::from_secs(1);
        let mut told = self.told.lock().await;
        let silence = async {
            while let Ok(said) = tokio::time::timeout(SILENCE, told.recv()).await {
                said.unwrap();
            }
        };
        tokio::time::timeout(super::LIMIT, silence).await.unwrap();
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        self.worker.take().map(JoinHandle::join);
    }
}

fn answer(mut stream: TcpStream, told: &UnboundedSender<String>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let mut byte_len = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            byte_len = value.trim().parse().ok()?;
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; byte_len];
    std::io::Read::read_exact(&mut reader, &mut body).ok()?;
    let page = match first.split(' ').nth(1) {
        Some("/join") => PAGE.to_owned(),
        Some("/busy") => format!("{BUSY}{PAGE}"),
        _ => String::new(),
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\
         Cross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Embedder-Policy: require-corp\r\n\
         \r\n{page}",
        page.len()
    )
    .ok()?;
    if first.starts_with("POST /tell ") {
        let _ = told.send(String::from_utf8_lossy(&body).into_owned());
    }
    Some(())
}
