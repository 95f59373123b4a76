//! How a server starts, is found, and ends.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::lane::{ScriptedLane, hello, open_over};
use common::{Scene, drains, options, program, refuses, until, within};
use holdfast_devices::lane::{LaneOptions, Lanes};
use holdfast_devices::{Device, ErrorKind};
use holdfast_models::Store;
use holdfast_server::{
    Client, Limits, Server, ServerError, ServerFile, ServerOptions, Status, Tls,
};
use holdfast_wire::{FromLane, PowerInfo, ToLane};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const PATIENCE: Duration = Duration::from_secs(10);

/// Starts a server over an empty store.
async fn start(folder: &Path, options: ServerOptions) -> Result<Server, ServerError> {
    let store = Arc::new(Store::open(folder.join("home")).unwrap());
    Server::start(Arc::new(Lanes::new(store, LaneOptions::default())), options).await
}

async fn fails(change: impl FnOnce(&mut ServerOptions)) -> ServerError {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path());
    change(&mut options);
    start(folder.path(), options).await.map(drop).unwrap_err()
}

#[tokio::test]
async fn an_address_beyond_loopback_needs_tls() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let error = fails(|options| options.address = address.parse().unwrap()).await;
        assert!(matches!(error, ServerError::NeedsTls(_)), "{error}");
        let message = error.to_string();
        assert!(message.contains("--tls-cert") && message.contains("--tls self-signed"));
    }
}

#[tokio::test]
async fn a_short_token_is_refused_and_a_good_one_is_used() {
    let error = fails(|options| options.token = Some("short".into())).await;
    assert!(matches!(error, ServerError::Token));
    let token = "a-token-of-someones-own-choice";
    let change = |options: &mut ServerOptions| options.token = Some(token.to_owned());
    let scene = Scene::with(LaneOptions::default(), change).await;
    assert_eq!(scene.server.join_link(), format!("{}/join#token={token}", scene.server.origin()));
    ScriptedLane::join(&scene).await;
}

#[tokio::test]
async fn a_port_in_use_is_told_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let error = fails(|options| options.address = address).await;
    assert!(matches!(error, ServerError::PortInUse(_)), "{error}");
    assert!(error.to_string().contains("--port"));
}

#[tokio::test]
async fn a_missing_certificate_is_named() {
    let files = Tls::Files { cert: "missing.pem".into(), key: "missing.key".into() };
    let error = fails(|options| options.tls = Some(files)).await;
    assert!(error.to_string().contains("missing.pem"), "{error}");
}

fn with_home(folder: &Path) -> ServerOptions {
    ServerOptions { home: Some(folder.join("home")), ..options(folder) }
}

#[tokio::test]
async fn other_programs_find_a_running_server_by_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let server = start(folder.path(), with_home(folder.path())).await.unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let metadata = std::fs::metadata(ServerFile::path(&home)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    }
    let found = ServerFile::find(&home).unwrap();
    assert_eq!((found.pid, &found.origin), (std::process::id(), &server.origin()));
    assert_eq!(found.join_link().await.unwrap(), server.join_link());
    let status = found.status().await.unwrap();
    assert_eq!((status.pid, status.lanes.len()), (std::process::id(), 0));

    // One home, one server.
    let error = start(folder.path(), with_home(folder.path())).await.map(drop).unwrap_err();
    assert!(error.to_string().contains(&server.origin()), "{error}");
    assert!(matches!(error, ServerError::Running { .. }));

    within(server.stop(PATIENCE)).await;
    assert!(!ServerFile::path(&home).exists());
    assert!(ServerFile::find(&home).is_none());
}

#[tokio::test]
async fn a_file_of_a_server_that_is_gone_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut file = ServerFile {
        version: "0.1.0".into(),
        pid: 1,
        origin: format!("http://{free}"),
        address: free,
        token: "0".repeat(32),
        fingerprint: None,
    };
    file.write(&home).unwrap();
    assert!(ServerFile::find(&home).is_none());
    assert!(!ServerFile::path(&home).exists());

    // On the same port there may be another Holdfast by now, which does not know the token.
    let server = start(folder.path(), options(folder.path())).await.unwrap();
    file.address = server.address();
    file.write(&home).unwrap();
    assert!(ServerFile::find(&home).is_none());
    assert!(!ServerFile::path(&home).exists());
}

#[tokio::test]
async fn a_server_that_is_too_busy_to_answer_is_still_there() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let limits = Limits { connections: 0, ..Limits::default() };
    let busy = ServerOptions { limits, ..with_home(folder.path()) };
    let server = start(folder.path(), busy).await.unwrap();
    let found = ServerFile::find(&home).unwrap();
    assert!(within(found.status()).await.is_err());
    assert_eq!(ServerFile::find(&home), Some(found));
    let error = start(folder.path(), with_home(folder.path())).await.map(drop).unwrap_err();
    assert!(matches!(error, ServerError::Running { .. }), "{error}");
    // With the server goes its hold on the home.
    drop(server);
    start(folder.path(), with_home(folder.path())).await.map(drop).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_servers_that_start_on_one_home_at_once_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let starts = (0..8).map(|_| {
        let options = with_home(&path);
        let path = path.clone();
        tokio::spawn(async move { start(&path, options).await })
    });
    let starts: Vec<_> = starts.collect();
    let (mut servers, mut errors) = (Vec::new(), Vec::new());
    for started in starts {
        match within(started).await.unwrap() {
            Ok(server) => servers.push(server),
            Err(error) => errors.push(error),
        }
    }
    assert_eq!((servers.len(), errors.len()), (1, 7));
    assert!(errors.iter().all(|error| matches!(error, ServerError::Running { .. })), "{errors:?}");
    let found = ServerFile::find(&path.join("home")).unwrap();
    assert_eq!(found.origin, servers[0].origin());
}

#[tokio::test]
async fn a_server_leaves_the_file_of_another_one_alone() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let server = start(folder.path(), with_home(folder.path())).await.unwrap();
    let mut other = ServerFile::find(&home).unwrap();
    other.pid += 1;
    other.write(&home).unwrap();
    within(server.stop(PATIENCE)).await;
    assert!(ServerFile::path(&home).exists());
}

#[tokio::test]
async fn stopping_waits_for_a_run_and_then_sends_the_lanes_away() {
    let scene = Scene::new().await;
    let (mut scripted, _) = ScriptedLane::join(&scene).await;
    let lane = scene.lane().await;
    let (loaded, _) = tokio::join!(within(lane.load(scene.segment(1))), scripted.load());
    let loaded = loaded.unwrap();
    let outcome = tokio::spawn({
        let lane = lane.clone();
        async move { lane.run(program("one", &loaded)).await }
    });
    let request = scripted.run().await;
    let control = scene.control();
    let stopped = tokio::spawn(scene.server.stop(PATIENCE));
    // It takes nothing new, but the run is still under way.
    drains(&control).await;
    scripted.answer(request, [1.0, 2.0]).await;
    let said = scripted.hear().await.0;
    assert_eq!(said, ToLane::Leave { reason: "Holdfast ends".into(), come_back: true });
    scripted.hear_close().await;
    within(stopped).await.unwrap();
    assert!(within(outcome).await.unwrap().is_ok());
}

#[tokio::test]
async fn stopping_does_not_wait_for_ever() {
    let scene = Scene::new().await;
    let (mut scripted, _) = ScriptedLane::join(&scene).await;
    let lane = scene.lane().await;
    let (loaded, _) = tokio::join!(within(lane.load(scene.segment(1))), scripted.load());
    let loaded = loaded.unwrap();
    let outcome = tokio::spawn(async move { lane.run(program("one", &loaded)).await });
    scripted.run().await;
    // The lane never answers, and its browser does not even read any more.
    within(scene.server.stop(Duration::from_millis(50))).await;
    let error = within(outcome).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Device);
    drop(scripted);
}

#[tokio::test]
async fn a_server_that_is_dropped_ends_at_once() {
    let scene = Scene::new().await;
    let address = scene.address();
    drop(scene.server);
    refuses(address).await;
}

#[tokio::test]
async fn status_tells_of_lanes() {
    let scene = Scene::new().await;
    let (scripted, _) = ScriptedLane::join(&scene).await;
    let lane = scene.lane().await;
    let token = scene.server.control_token().reveal();
    let client = Client::new(scene.address(), token, None);
    let status: Status = client.get_json("/control/status").await.unwrap();
    let told = &status.lanes[0];
    assert_eq!((told.name.as_str(), told.connected), (lane.info().name.as_str(), true));
    assert_eq!((told.backend.as_str(), told.browser.as_str()), ("wasm", "Scripted 1"));
    drop(scripted);
    until("the cut is noticed", || !lane.is_connected()).await;
    let status: Status = client.get_json("/control/status").await.unwrap();
    assert!(!status.lanes[0].connected);
}

#[tokio::test]
async fn a_self_signed_certificate_serves_those_who_know_its_fingerprint() {
    let change = |options: &mut ServerOptions| {
        options.tls = Some(Tls::SelfSigned);
        options.names = vec!["studio.example".into()];
        options.address = "0.0.0.0:0".parse().unwrap();
    };
    let scene = Scene::with(LaneOptions::default(), change).await;
    let port = scene.address().port();
    assert_eq!(scene.server.origin(), format!("https://studio.example:{port}"));
    let fingerprint = scene.server.fingerprint().unwrap();
    assert_eq!(fingerprint.len(), 32 * 3 - 1);
    let token = scene.server.control_token().reveal();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let client = Client::new(address, token, Some(fingerprint.clone()));
    let status: Status = within(client.get_json("/control/status")).await.unwrap();
    assert_eq!(status.origin, scene.server.origin());

    let other = fingerprint.replace('A', "B").replace('0', "1");
    let mistaken = Client::new(address, token, Some(other));
    assert!(within(mistaken.get("/control/status")).await.is_err());
    // Plain HTTP is not served there.
    let plain = Client::new(address, token, None);
    assert!(within(plain.get("/control/status")).await.is_err());
}

/// A certificate in files for these names, and what trusts it.
fn certificate(folder: &Path, names: &[&str]) -> (Tls, tokio_rustls::TlsConnector) {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Tls::Files { cert, key }, tokio_rustls::TlsConnector::from(Arc::new(config)))
}

#[tokio::test]
async fn a_lane_joins_over_tls_by_the_name_in_the_certificate() {
    let folder = tempfile::tempdir().unwrap();
    // A name for many is none that can stand in a link.
    let (tls, connector) = certificate(folder.path(), &["*.wide.example", "studio.example"]);
    let change = |options: &mut ServerOptions| options.tls = Some(tls);
    let scene = Scene::with(LaneOptions::default(), change).await;
    let host = format!("studio.example:{}", scene.address().port());
    let origin = scene.server.origin();
    assert_eq!(origin, format!("https://{host}"));
    let connect = async || {
        let stream = TcpStream::connect(scene.address()).await.unwrap();
        let name = "studio.example".try_into().unwrap();
        within(connector.connect(name, stream)).await.unwrap()
    };

    let mut visit = connect().await;
    let request = format!("GET /join HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    visit.write_all(request.as_bytes()).await.unwrap();
    let mut page = String::new();
    within(visit.read_to_string(&mut page)).await.unwrap();
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");

    let protocols = format!("holdfast.v1, holdfast.token.{}", scene.token());
    let to = format!("wss://{host}/lane");
    let mut lane = open_over(connect().await, &to, &protocols, Some(&origin)).await.unwrap();
    lane.say(&FromLane::Hello(Box::new(hello())), &[]).await;
    assert!(matches!(lane.hear().await, (ToLane::Welcome(_), _)));
}

#[tokio::test]
async fn control_reaches_a_server_whose_certificate_is_not_for_its_address() {
    let folder = tempfile::tempdir().unwrap();
    let (tls, _) = certificate(folder.path(), &["studio.example"]);
    let change = |options: &mut ServerOptions| {
        options.tls = Some(tls);
        // An address of this machine that has no name.
        options.address = "127.0.0.2:0".parse().unwrap();
    };
    let scene = Scene::with(LaneOptions::default(), change).await;
    within(scene.control().get("/control/status")).await.unwrap();
}

#[tokio::test]
async fn a_name_that_is_given_stands_in_the_link_if_the_certificate_is_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let (tls, _) = certificate(folder.path(), &["studio.example", "*.wide.example"]);
    let with = |name: &str| {
        let (names, tls) = (vec![name.to_owned()], Some(tls.clone()));
        move |options: &mut ServerOptions| {
            options.names = names;
            options.tls = tls;
        }
    };
    let scene = Scene::with(LaneOptions::default(), with("a.wide.example")).await;
    assert!(scene.server.origin().starts_with("https://a.wide.example:"));
    let error = fails(with("other.example")).await;
    assert!(matches!(&error, ServerError::Name(name) if name == "other.example"), "{error}");
    // Without TLS, a name is what a page of another origin could come by.
    let plain = |options: &mut ServerOptions| options.names = vec!["studio.example".to_owned()];
    assert!(matches!(fails(plain).await, ServerError::Name(_)));
}

#[tokio::test]
async fn one_slow_handshake_does_not_hold_up_others() {
    let change = |options: &mut ServerOptions| options.tls = Some(Tls::SelfSigned);
    let scene = Scene::with(LaneOptions::default(), change).await;
    let _silent = TcpStream::connect(scene.address()).await.unwrap();
    let token = scene.server.control_token().reveal();
    let client = Client::new(scene.address(), token, scene.server.fingerprint());
    within(client.get("/control/status")).await.unwrap();
}

#[tokio::test]
async fn what_a_machine_can_spare_is_known_by_its_last_word() {
    let scene = Scene::new().await;
    let (mut scripted, welcome) = ScriptedLane::join(&scene).await;
    let lane = scene.lane().await;
    assert_eq!(lane.power(), PowerInfo::FULL);
    let low = PowerInfo { on_battery: Some(true), share: 0.25, ..PowerInfo::FULL };
    scripted.say(&FromLane::Power { power: low }, &[]).await;
    until("it is heard", || lane.power() == low).await;
    assert_eq!(lane.hello().power, PowerInfo::FULL);

    // What makes no sense is brought within bounds.
    let strange = PowerInfo { share: 7.0, battery_level: Some(-1.0), ..low };
    scripted.say(&FromLane::Power { power: strange }, &[]).await;
    let bounded = PowerInfo { share: 1.0, battery_level: Some(0.0), ..low };
    until("it is heard", || lane.power() == bounded).await;

    // A lane that comes back tells anew.
    drop(scripted);
    until("the cut is noticed", || !lane.is_connected()).await;
    let (_scripted, again) = ScriptedLane::rejoin(&scene, &welcome.session, &[]).await;
    assert!(again.resumed);
    assert_eq!(lane.power(), PowerInfo::FULL);
}
