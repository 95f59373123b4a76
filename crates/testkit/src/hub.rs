//! A small model hub on this machine: the repository `owner/model`, made in code, served over
//! real HTTP, with the faults that networks and servers have.
//!
//! Whatever is wrong with a request or with the server itself is a panic: it is for tests.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use holdfast_graph::Digest;
use sha1::Digest as _;

/// The commit that every revision leads to.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What goes wrong with one answer.
#[derive(Clone, Copy)]
pub enum Fault {
    /// The connection breaks after this many bytes of the body.
    Cut(usize),
    /// A range is not looked at.
    IgnoreRange,
    /// A range is not looked at, and the connection breaks after this many bytes.
    IgnoreRangeAndCut(usize),
    /// A range is answered with one that begins a byte later.
    ShiftRange,
    /// The file got another tag, and the server continues it nevertheless.
    ChangeTag,
    /// One bit of the body is wrong.
    FlipBit,
    /// The body has a byte too many.
    Extend,
    /// Only a status.
    Status(u16),
    /// The hub sends the client to an address.
    Redirect(&'static str),
}

/// A request that reached the server.
#[derive(Debug, Clone)]
pub struct Seen {
    /// What was asked for.
    pub path: String,
    headers: HashMap<String, String>,
}

impl Seen {
    /// A header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// What the server has and does.
#[derive(Default)]
pub struct State {
    /// Path → bytes, and whether they are in large-file storage.
    pub files: BTreeMap<String, (Vec<u8>, bool)>,
    /// Listed in addition, as they are.
    pub more_entries: Vec<String>,
    /// How many files a page of the listing has.
    pub page_len: Option<usize>,
    /// Where downloads are sent on to, as hubs do.
    pub cdn: Option<SocketAddr>,
    /// What goes wrong with the next answers to requests whose path contains the text.
    pub faults: HashMap<String, VecDeque<Fault>>,
    /// What was asked so far.
    pub seen: Vec<Seen>,
}

/// A server that ends with the test.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts to serve on a free port of this machine.
    pub fn start(state: State) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let state = Arc::new(Mutex::new(state));
        let stopped = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (state, stopped) = (state.clone(), stopped.clone());
            move || {
                for stream in listener.incoming() {
                    if stopped.load(Ordering::SeqCst) {
                        return;
                    }
                    // A client that goes away in the middle is its own affair.
                    let _ = answer(stream.expect("a connection"), &state);
                }
            }
        });
        Server { address, state, stopped, thread: Some(thread) }
    }

    /// The address that clients are given.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Changes what the server has and does.
    pub fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().expect("no code panics while holding this lock"));
    }

    /// Lets the next answers to requests whose path contains the text go wrong.
    pub fn fail(&self, path: &str, faults: &[Fault]) {
        self.change(|state| {
            state.faults.insert(path.to_owned(), faults.iter().copied().collect());
        });
    }

    /// The requests so far whose path contains the text.
    pub fn seen(&self, path: &str) -> Vec<Seen> {
        let state = self.state.lock().expect("no code panics while holding this lock");
        state.seen.iter().filter(|seen| seen.path.contains(path)).cloned().collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Wakes the thread up.
        let _ = TcpStream::connect(self.address);
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.expect("it was started").expect("the server did not panic");
        }
    }
}

fn answer(mut stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let seen = read_request(&stream)?;
    let mut state = state.lock().expect("no code panics while holding this lock");
    state.seen.push(seen.clone());
    let queue = state.faults.iter_mut().find(|(path, _)| seen.path.contains(path.as_str()));
    let fault = queue.and_then(|(_, faults)| faults.pop_front());
    let reply = match fault {
        Some(Fault::Status(status)) => Reply::new(status, "Retry-After: 7\r\n", b"no"),
        Some(Fault::Redirect(to)) => Reply::new(307, &format!("Location: {to}\r\n"), b""),
        _ => reply(&state, &seen, fault),
    };
    drop(state);
    write!(
        stream,
        "HTTP/1.1 {} Status\r\nConnection: close\r\nContent-Length: {}\r\n{}\r\n",
        reply.status,
        reply.body.len(),
        reply.headers
    )?;
    match fault {
        Some(Fault::Cut(byte_len) | Fault::IgnoreRangeAndCut(byte_len)) => {
            stream.write_all(&reply.body[..byte_len])
        }
        _ => stream.write_all(&reply.body),
    }
}

fn read_request(stream: &TcpStream) -> std::io::Result<Seen> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().ok_or(std::io::ErrorKind::UnexpectedEof)??;
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = HashMap::new();
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    Ok(Seen { path, headers })
}

struct Reply {
    status: u16,
    headers: String,
    body: Vec<u8>,
}

impl Reply {
    fn new(status: u16, headers: &str, body: &[u8]) -> Reply {
        Reply { status, headers: headers.to_owned(), body: body.to_owned() }
    }
}

fn reply(state: &State, seen: &Seen, fault: Option<Fault>) -> Reply {
    let (path, query) = seen.path.split_once('?').unwrap_or((&seen.path, ""));
    if path.starts_with("/api/models/owner/model/revision/") {
        return Reply::new(200, "", format!("{{\"sha\":\"{COMMIT}\"}}").as_bytes());
    }
    if path == format!("/api/models/owner/model/tree/{COMMIT}") {
        return listing(state, path, query);
    }
    let Some(file) = path.strip_prefix(&format!("/owner/model/resolve/{COMMIT}/")) else {
        return Reply::new(404, "", b"no such page");
    };
    if let Some(cdn) = state.cdn {
        return Reply::new(302, &format!("Location: http://{cdn}{path}?signature=1\r\n"), b"");
    }
    match state.files.get(&file.replace("%20", " ").replace("%23", "#")) {
        Some((bytes, _)) => content(bytes, seen, fault),
        None => Reply::new(404, "", b"no such file"),
    }
}

fn listing(state: &State, path: &str, query: &str) -> Reply {
    let mut entries =
        vec!["{\"type\":\"directory\",\"oid\":\"\",\"size\":0,\"path\":\"onnx\"}".to_owned()];
    entries.extend(state.files.iter().map(|(path, (bytes, large))| entry(path, bytes, *large)));
    entries.extend(state.more_entries.iter().cloned());
    let page_len = state.page_len.unwrap_or(entries.len());
    let page: usize = query.split("cursor=").nth(1).map_or(0, |page| page.parse().expect("a page"));
    let headers = if (page + 1) * page_len < entries.len() {
        format!("Link: <{path}?recursive=true&cursor={}>; rel=\"next\"\r\n", page + 1)
    } else {
        String::new()
    };
    let entries: Vec<String> = entries.into_iter().skip(page * page_len).take(page_len).collect();
    Reply::new(200, &headers, format!("[{}]", entries.join(",")).as_bytes())
}

fn entry(path: &str, bytes: &[u8], large: bool) -> String {
    let size = bytes.len();
    if large {
        let pointer = "0".repeat(40);
        let sha256 = Digest::of(bytes);
        return format!(
            "{{\"type\":\"file\",\"path\":\"{path}\",\"oid\":\"{pointer}\",\"size\":{size},\
             \"lfs\":{{\"oid\":\"{sha256}\",\"size\":{size},\"pointerSize\":134}}}}"
        );
    }
    let mut hash = sha1::Sha1::new();
    hash.update(format!("blob {size}\0"));
    hash.update(bytes);
    let id: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{{\"type\":\"file\",\"path\":\"{path}\",\"oid\":\"{id}\",\"size\":{size}}}")
}

fn content(bytes: &[u8], seen: &Seen, fault: Option<Fault>) -> Reply {
    let mut body = bytes.to_owned();
    match fault {
        Some(Fault::FlipBit) => body[0] ^= 1,
        Some(Fault::Extend) => body.push(0),
        _ => {}
    }
    let tag = if matches!(fault, Some(Fault::ChangeTag)) { "\"two\"" } else { "\"one\"" };
    let tag_line = format!("ETag: {tag}\r\n");
    let range =
        seen.header("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-'));
    let start: Option<usize> = range.map(|start| start.parse().expect("a range"));
    match (start, fault) {
        (None, _) | (_, Some(Fault::IgnoreRange | Fault::IgnoreRangeAndCut(_))) => {
            Reply::new(200, &tag_line, &body)
        }
        (Some(start), _) if start >= body.len() => Reply::new(416, "", b""),
        (Some(start), fault) => {
            let start = start + usize::from(matches!(fault, Some(Fault::ShiftRange)));
            let (last, total) = (body.len() - 1, body.len());
            let headers = format!("{tag_line}Content-Range: bytes {start}-{last}/{total}\r\n");
            Reply::new(206, &headers, &body[start..])
        }
    }
}
