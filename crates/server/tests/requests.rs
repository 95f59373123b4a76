//! Who gets an answer over HTTP, to what, and with which headers.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use std::time::Duration;

use common::lane::{ScriptedLane, loaded};
use common::{SECRET_FILE, Scene, blobs, request, within};
use holdfast_devices::Device;
use holdfast_devices::lane::LaneOptions;
use holdfast_graph::blob_name;
use holdfast_server::Limits;
use holdfast_wire::ToLane;
use hyper::{Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn serves_the_page_with_all_its_headers() {
    let scene = Scene::new().await;
    let page = scene.get("/join", &[]).await;
    assert_eq!(page.status, StatusCode::OK);
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert!(page.text().contains("Holdfast"));
    for path in ["/join", "/assets/page.js", "/nothing", "/blobs/x"] {
        let response = scene.get(path, &[]).await;
        let policy = response.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self' 'wasm-unsafe-eval';"));
        assert!(policy.contains(&format!("connect-src 'self' ws://{};", scene.host())), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"));
        assert_eq!(response.header("cross-origin-opener-policy"), "same-origin");
        assert_eq!(response.header("cross-origin-embedder-policy"), "require-corp");
        assert_eq!(response.header("cross-origin-resource-policy"), "same-origin");
        assert_eq!(response.header("x-content-type-options"), "nosniff");
        assert_eq!(response.header("referrer-policy"), "no-referrer");
        assert!(!response.headers.keys().any(|name| name.starts_with("access-control")));
    }
}

#[tokio::test]
async fn leads_to_the_page_from_the_root() {
    let scene = Scene::new().await;
    let response = scene.get("/", &[]).await;
    assert_eq!(response.status, StatusCode::SEE_OTHER);
    assert_eq!(response.header("location"), "/join");
}

#[tokio::test]
async fn serves_assets_by_type_and_only_if_they_are_new() {
    let scene = Scene::new().await;
    let script = scene.get("/assets/page.js", &[]).await;
    assert_eq!(script.header("content-type"), "text/javascript; charset=utf-8");
    let wasm = scene.get("/assets/ort/ort.wasm", &[]).await;
    assert_eq!(wasm.header("content-type"), "application/wasm");
    assert_eq!((wasm.body.len(), wasm.header("content-length")), (1 << 20, "1048576"));
    assert_eq!(wasm.header("cache-control"), "no-cache");

    let tag = wasm.header("etag").to_owned();
    let same = scene.get("/assets/ort/ort.wasm", &[("if-none-match", &tag)]).await;
    assert_eq!((same.status, same.body.len()), (StatusCode::NOT_MODIFIED, 0));
    std::fs::write(scene.folder.path().join("web/assets/ort/ort.wasm"), "new").unwrap();
    let new = scene.get("/assets/ort/ort.wasm", &[("if-none-match", &tag)]).await;
    assert_eq!((new.status, new.text().as_str()), (StatusCode::OK, "new"));
}

#[tokio::test]
async fn no_path_leads_out_of_the_assets() {
    let scene = Scene::new().await;
    for path in [
        "/assets/../secret.txt",
        "/assets/%2e%2e/secret.txt",
        "/assets/..%2fsecret.txt",
        "/assets/..%5csecret.txt",
        "/assets//secret.txt",
        "/assets/%2e%2e/%2e%2e/secret.txt",
        "/assets/./../secret.txt",
        "/assets/page.js/../../secret.txt",
        "/assets/%00",
        "/assets/",
        "/assets/ort",
        "/secret.txt",
    ] {
        let response = scene.get(path, &[]).await;
        assert!(response.status.is_client_error(), "{path}: {}", response.status);
        assert!(!response.text().contains(SECRET_FILE), "{path}");
    }
    // A path as no client would send it, but somebody else could.
    let mut stream = TcpStream::connect(scene.address()).await.unwrap();
    let raw = format!(
        "GET /assets/../../secret.txt HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n",
        scene.host()
    );
    stream.write_all(raw.as_bytes()).await.unwrap();
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
}

#[tokio::test]
async fn a_request_for_another_host_is_misdirected() {
    let scene = Scene::new().await;
    let port = scene.address().port();
    let address = scene.address();
    let get = |host: String| async move {
        request(address, Method::GET, "/join", &[("host", &host)]).await
    };
    for ours in [format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("[::1]:{port}")]
    {
        assert_eq!(get(ours).await.status, StatusCode::OK);
    }
    for foreign in [format!("evil.example:{port}"), "127.0.0.1:1".into(), "127.0.0.1".into()] {
        let response = get(foreign).await;
        assert_eq!(response.status, StatusCode::MISDIRECTED_REQUEST);
        assert!(response.text().contains("address that it printed"));
    }
}

#[tokio::test]
async fn a_request_without_a_host_or_with_two_is_misdirected() {
    let scene = Scene::new().await;
    let host = scene.host();
    let none = request(scene.address(), Method::GET, "/join", &[]).await;
    assert_eq!(none.status, StatusCode::MISDIRECTED_REQUEST);
    let two = scene.get("/join", &[("host", &host)]).await;
    assert_eq!(two.status, StatusCode::MISDIRECTED_REQUEST);
    let absolute = scene.get(&format!("http://evil.example:{}/join", 1), &[]).await;
    assert_eq!(absolute.status, StatusCode::MISDIRECTED_REQUEST);
}

#[tokio::test]
async fn requests_of_other_pages_are_refused() {
    let scene = Scene::new().await;
    let own = scene.server.origin();
    let status = |headers: Vec<(&'static str, String)>| {
        let scene = &scene;
        async move {
            let headers: Vec<(&str, &str)> =
                headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            scene.get("/join", &headers).await.status
        }
    };
    assert_eq!(status(vec![("origin", own.clone())]).await, StatusCode::OK);
    for foreign in ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1"] {
        assert_eq!(status(vec![("origin", foreign.into())]).await, StatusCode::FORBIDDEN);
    }
    // Served under both names, but these are two origins.
    let other_name = own.replace("127.0.0.1", "localhost");
    assert_eq!(status(vec![("origin", other_name)]).await, StatusCode::FORBIDDEN);

    for (site, expected) in [
        ("same-origin", StatusCode::OK),
        ("none", StatusCode::OK),
        ("same-site", StatusCode::FORBIDDEN),
        ("cross-site", StatusCode::FORBIDDEN),
    ] {
        assert_eq!(status(vec![("sec-fetch-site", site.into())]).await, expected, "{site}");
    }
}

#[tokio::test]
async fn a_link_on_another_page_leads_to_the_page_and_nowhere_else() {
    let scene = Scene::new().await;
    let link = [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "document"),
    ];
    assert_eq!(scene.get("/join", &link).await.status, StatusCode::OK);
    assert_eq!(scene.get("/assets/page.js", &link).await.status, StatusCode::FORBIDDEN);
    let frame = [link[0], link[1], ("sec-fetch-dest", "iframe")];
    assert_eq!(scene.get("/join", &frame).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn other_methods_are_not_allowed() {
    let scene = Scene::new().await;
    let host = scene.host();
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
        let response = request(scene.address(), method, "/join", &[("host", &host)]).await;
        assert_eq!(response.status, StatusCode::METHOD_NOT_ALLOWED);
    }
}

#[tokio::test]
async fn control_needs_its_own_token() {
    let scene = Scene::new().await;
    let (join, control) = (scene.token(), scene.server.control_token().reveal().to_owned());
    assert!(!scene.server.join_link().contains(&control));
    for path in ["/control/status", "/control/join"] {
        for wrong in ["", "Bearer ", &format!("Bearer {join}"), &control] {
            let response = scene.get(path, &[("authorization", wrong)]).await;
            assert_eq!(response.status, StatusCode::UNAUTHORIZED, "{path} {wrong}");
        }
        let right = format!("Bearer {control}");
        assert_eq!(scene.get(path, &[("authorization", &right)]).await.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn blobs_are_there_for_the_lane_whose_segments_need_them() {
    let scene = Scene::new().await;
    let (mut scripted, welcome) = ScriptedLane::join(&scene).await;
    let lane = scene.lane().await;
    let (wanted, other) = (scene.segment(1), scene.segment(2));
    let (graph, weight) = blobs(&wanted);
    let key = format!("Bearer {}", welcome.blob_key);
    let get = |digest, key: String| {
        let path = format!("/blobs/{}", blob_name(&digest));
        let scene = &scene;
        async move { scene.get(&path, &[("authorization", &key)]).await }
    };
    // Before it is asked to load, nothing.
    assert_eq!(get(weight, key.clone()).await.status, StatusCode::FORBIDDEN);

    let load = tokio::spawn({
        let (lane, wanted) = (lane.clone(), wanted.clone());
        async move { lane.load(wanted).await }
    });
    let (ToLane::Load { request, graph: named, weights, .. }, _) = scripted.hear().await else {
        panic!("no load")
    };
    assert_eq!((named.name, weights[0].name.clone()), (blob_name(&graph), blob_name(&weight)));
    for digest in [graph, weight] {
        let response = get(digest, key.clone()).await;
        assert_eq!(response.status, StatusCode::OK);
        assert_eq!(response.body, scene.store.blob(&digest).unwrap());
        assert_eq!(response.header("cache-control"), "no-store");
        assert_eq!(response.header("content-length"), response.body.len().to_string());
    }
    // Nothing else, nobody else, and no way to tell why.
    let (other_graph, other_weight) = blobs(&other);
    let nothing = get(other_weight, key.clone()).await;
    assert_eq!(nothing.status, StatusCode::FORBIDDEN);
    for response in [
        get(other_graph, key.clone()).await,
        get(weight, "Bearer 00".into()).await,
        get(weight, format!("Bearer {}", scene.token())).await,
        get(weight, String::new()).await,
        scene.get("/blobs/sha256-zz", &[("authorization", &key)]).await,
        scene.get("/blobs/..%2f..%2fsecret.txt", &[("authorization", &key)]).await,
    ] {
        assert_eq!((response.status, &response.body), (nothing.status, &nothing.body));
    }

    scripted.say(&loaded(request), &[]).await;
    within(load).await.unwrap().unwrap();
    lane.leave("the test is over", false);
    assert_eq!(get(weight, key).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_connection_too_many_is_turned_away() {
    let limits = Limits { connections: 2, ..Limits::default() };
    let scene = Scene::with(LaneOptions::default(), |options| options.limits = limits).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(scene.address()).await.unwrap();
        let request = format!("GET /join HTTP/1.1\r\nhost: {}\r\n\r\n", scene.host());
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut first = [0; 12];
        within(stream.read_exact(&mut first)).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        held.push(stream);
    }
    let mut third = TcpStream::connect(scene.address()).await.unwrap();
    let mut answer = String::new();
    within(third.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503") && answer.ends_with("now.\n"), "{answer}");
    assert_eq!(answer.split_once("\r\n\r\n").unwrap().1.len(), 36);

    // There is room again when one of them is gone.
    drop(held.pop());
    loop {
        let mut stream = TcpStream::connect(scene.address()).await.unwrap();
        let request =
            format!("GET /join HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", scene.host());
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = String::new();
        let read = within(stream.read_to_string(&mut answer)).await;
        if read.is_ok() && answer.starts_with("HTTP/1.1 200") {
            break;
        }
    }
}

#[tokio::test]
async fn a_client_that_dawdles_over_its_headers_is_cut() {
    let limits = Limits { header_time: Duration::from_millis(50), ..Limits::default() };
    let scene = Scene::with(LaneOptions::default(), |options| options.limits = limits).await;
    let mut stream = TcpStream::connect(scene.address()).await.unwrap();
    stream.write_all(b"GET /join HTTP/1.1\r\nhost: ").await.unwrap();
    let mut answer = Vec::new();
    // Whether it is told or not, it is over.
    let _ = within(stream.read_to_end(&mut answer)).await;
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut() {
    let limits =
        Limits { connections: 1, write_time: Duration::from_millis(100), ..Limits::default() };
    let change = |options: &mut holdfast_server::ServerOptions| {
        options.limits = limits;
        let asset = options.assets.as_ref().unwrap().join("assets/large.bin");
        // More than any buffer in between holds.
        std::fs::File::create(asset).unwrap().set_len(1 << 30).unwrap();
    };
    let scene = Scene::with(LaneOptions::default(), change).await;
    let request = |path| format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", scene.host());
    let mut stalled = TcpStream::connect(scene.address()).await.unwrap();
    stalled.write_all(request("/assets/large.bin").as_bytes()).await.unwrap();
    let mut first = [0; 12];
    within(stalled.read_exact(&mut first)).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    // It kept the only place there is.
    let served = async {
        loop {
            let mut stream = TcpStream::connect(scene.address()).await.unwrap();
            let _ = stream.write_all(request("/join").as_bytes()).await;
            let read = stream.read_exact(&mut first).await;
            if read.is_ok() && &first == b"HTTP/1.1 200" {
                break;
            }
        }
    };
    within(served).await;
}

#[tokio::test]
async fn headers_without_end_are_refused() {
    let scene = Scene::new().await;
    let host = scene.host();
    let many: Vec<(String, String)> =
        (0..200).map(|number| (format!("x-{number}"), "y".to_owned())).collect();
    let many: Vec<(&str, &str)> = std::iter::once(("host", host.as_str()))
        .chain(many.iter().map(|(name, value)| (name.as_str(), value.as_str())))
        .collect();
    let response = request(scene.address(), Method::GET, "/join", &many).await;
    assert_eq!(response.status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    let long = "y".repeat(100_000);
    let response = scene.get("/join", &[("x-long", &long)]).await;
    assert_eq!(response.status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
}
