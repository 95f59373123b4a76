//! Downloads from a hub, against a server that fails in the ways of real ones.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests may")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_graph::Digest;
use holdfast_models::hub::{Hub, HubError, Listing, RemoteFile, Repository, Retry, Token};
use holdfast_testkit::hub::{COMMIT, Fault, Server, State};
use tempfile::TempDir;

const MODEL: &str = "onnx/model.onnx";

/// A hub with one repository, and an empty folder to download into.
struct Scene {
    server: Server,
    hub: Hub,
    folder: TempDir,
    waits: Arc<Mutex<Vec<u64>>>,
}

impl Scene {
    fn new() -> Scene {
        Scene::with_token(None)
    }

    fn with_token(token: Option<&str>) -> Scene {
        let mut state = State::default();
        state.files.insert(MODEL.to_owned(), (model_bytes(), true));
        state.files.insert("config.json".to_owned(), (b"{\"a\": 1}\n".to_vec(), false));
        state.files.insert("README.md".to_owned(), (b"# Read me".to_vec(), false));
        let server = Server::start(state);
        let waits = Arc::new(Mutex::new(Vec::new()));
        let token = token.map(|token| Token::new(token, "a test").unwrap());
        let hub = Hub::new(&server.endpoint(), token).unwrap().with_retry(Retry {
            failure_limit: 3,
            wait: Box::new({
                let waits = waits.clone();
                move |wait: Duration| waits.lock().unwrap().push(wait.as_secs())
            }),
        });
        Scene { server, hub, folder: tempfile::tempdir().unwrap(), waits }
    }

    fn list(&self) -> Result<Listing, HubError> {
        self.hub.list(&repository(), "main")
    }

    fn pull(&self) -> Result<Vec<PathBuf>, HubError> {
        let want = |file: &RemoteFile| !file.path.ends_with(".md");
        self.hub.download(&self.list()?, want, self.folder.path(), &mut |_| ())
    }

    /// The ranges that the model's requests asked for.
    fn ranges(&self) -> Vec<String> {
        let seen = self.server.seen("model.onnx");
        seen.iter().map(|seen| seen.header("range").unwrap_or("all").to_owned()).collect()
    }

    fn waits(&self) -> Vec<u64> {
        self.waits.lock().unwrap().clone()
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn part(&self) -> PathBuf {
        let hash = Digest::of(&model_bytes()).to_string();
        self.path(&format!("{MODEL}.{}.part", &hash[..12]))
    }

    fn assert_pulled(&self) {
        assert_eq!(fs::read(self.path(MODEL)).unwrap(), model_bytes());
        assert_eq!(fs::read(self.path("config.json")).unwrap(), b"{\"a\": 1}\n");
        assert_eq!(files_in(&self.path("onnx")), ["model.onnx"]);
    }
}

fn repository() -> Repository {
    "owner/model".parse().unwrap()
}

fn model_bytes() -> Vec<u8> {
    (0..300_000_u32).flat_map(|index| index.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

fn files_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn downloads_wanted_files_of_the_listed_commit_and_no_others() {
    let scene = Scene::new();
    let paths = scene.pull().unwrap();
    scene.assert_pulled();
    assert_eq!(paths, [scene.path("config.json"), scene.path(MODEL)]);
    assert_eq!(files_in(scene.folder.path()), [".holdfast.lock", "config.json", "onnx"]);
    for seen in scene.server.seen("/resolve/") {
        assert!(seen.path.contains(COMMIT), "{}", seen.path);
    }
    assert!(scene.waits().is_empty());
}

#[test]
fn lists_sizes_and_hashes_over_several_pages() {
    let scene = Scene::new();
    let whole = scene.list().unwrap();
    assert_eq!(whole.commit, COMMIT);
    let files: Vec<(&str, u64)> =
        whole.files.iter().map(|file| (file.path.as_str(), file.size)).collect();
    assert_eq!(files, [("README.md", 9), ("config.json", 9), (MODEL, 1_200_000)]);
    scene.server.change(|state| state.page_len = Some(1));
    assert_eq!(scene.list().unwrap(), whole);
    assert_eq!(scene.server.seen("cursor=3").len(), 1);
}

#[test]
fn revision_is_one_segment_of_the_address() {
    let scene = Scene::new();
    scene.hub.list(&repository(), "refs/pr/1").unwrap();
    assert_eq!(scene.server.seen("/revision/refs%2Fpr%2F1").len(), 1);
}

#[test]
fn names_with_special_characters_arrive() {
    let scene = Scene::new();
    let path = "onnx/a b#1.onnx";
    scene.server.change(|state| {
        state.files.insert(path.to_owned(), (b"weights".to_vec(), true));
    });
    scene.pull().unwrap();
    assert_eq!(fs::read(scene.path(path)).unwrap(), b"weights");
}

#[test]
fn goes_on_where_a_connection_broke() {
    let scene = Scene::new();
    scene.server.fail("model.onnx", &[Fault::Cut(1000), Fault::Cut(500_000), Fault::Cut(0)]);
    scene.pull().unwrap();
    scene.assert_pulled();
    assert_eq!(scene.ranges(), ["all", "bytes=1000-", "bytes=501000-", "bytes=501000-"]);
    // The second failure came after new bytes, the third did not.
    assert_eq!(scene.waits(), [1, 1, 2]);
    let last = &scene.server.seen("model.onnx")[3];
    assert_eq!(last.header("if-range"), Some("\"one\""));
}

#[test]
fn goes_on_where_an_earlier_download_ended() {
    let scene = Scene::new();
    scene.server.fail("model.onnx", &[Fault::Cut(1000), Fault::Cut(0), Fault::Cut(0)]);
    let error = scene.pull().unwrap_err();
    assert!(matches!(error, HubError::Cut { byte_len: 1000, .. }), "{error}");
    assert_eq!(fs::read(scene.part()).unwrap(), model_bytes()[..1000]);
    assert!(!scene.path(MODEL).exists());

    scene.pull().unwrap();
    scene.assert_pulled();
    assert_eq!(scene.ranges().last().unwrap(), "bytes=1000-");
}

#[test]
fn part_of_another_version_is_not_continued() {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("onnx")).unwrap();
    let other = scene.path(&format!("{MODEL}.0123456789ab.part"));
    fs::write(&other, "of another version").unwrap();
    scene.pull().unwrap();
    assert_eq!(scene.ranges(), ["all"]);
    assert_eq!(fs::read(scene.path(MODEL)).unwrap(), model_bytes());
}

#[test]
fn starts_over_where_the_server_cannot_continue() {
    for (fault, ranges) in [
        (Fault::IgnoreRange, &["all", "bytes=1000-"][..]),
        (Fault::ShiftRange, &["all", "bytes=1000-", "all"]),
        (Fault::ChangeTag, &["all", "bytes=1000-", "all"]),
        (Fault::Status(416), &["all", "bytes=1000-", "all"]),
    ] {
        let scene = Scene::new();
        scene.server.fail("model.onnx", &[Fault::Cut(1000), fault]);
        scene.pull().unwrap();
        scene.assert_pulled();
        assert_eq!(scene.ranges(), ranges);
    }
}

#[test]
fn gives_up_on_a_server_that_always_breaks_at_the_same_place() {
    let scene = Scene::new();
    scene.server.fail("model.onnx", &[Fault::IgnoreRangeAndCut(1000); 10]);
    let error = scene.pull().unwrap_err();
    assert!(matches!(error, HubError::Cut { .. }), "{error}");
    assert_eq!(scene.waits(), [1, 2]);
}

#[test]
fn wrong_bytes_are_an_error_and_leave_nothing() {
    for (path, kind) in [(MODEL, "SHA-256"), ("config.json", "git id")] {
        let scene = Scene::new();
        scene.server.fail(path, &[Fault::FlipBit]);
        let error = scene.pull().unwrap_err();
        let HubError::WrongContent { file, expected, found } = &error else { panic!("{error}") };
        assert_eq!(file, path);
        assert!(expected.starts_with(kind) && found.starts_with(kind) && expected != found);
        assert!(error.to_string().contains(expected) && error.to_string().contains(found));
        assert!(!scene.path(path).exists());
        assert!(!scene.part().exists());

        scene.pull().unwrap();
        scene.assert_pulled();
    }
}

#[test]
fn wrong_bytes_do_not_replace_what_is_there() {
    let scene = Scene::new();
    fs::write(scene.path("config.json"), "{\"a\": 0}\n").unwrap();
    scene.server.fail("config.json", &[Fault::FlipBit]);
    assert!(scene.pull().is_err());
    assert_eq!(fs::read(scene.path("config.json")).unwrap(), b"{\"a\": 0}\n");
    scene.pull().unwrap();
    scene.assert_pulled();
}

#[test]
fn too_many_bytes_are_an_error() {
    let scene = Scene::new();
    scene.server.fail("model.onnx", &[Fault::Extend]);
    let error = scene.pull().unwrap_err();
    assert!(
        matches!(&error, HubError::WrongContent { expected, .. } if expected == "1200000 bytes")
    );
    assert!(!scene.part().exists());
}

#[test]
fn files_that_are_there_are_not_fetched_again() {
    let scene = Scene::new();
    scene.pull().unwrap();
    let requests = scene.server.seen("/resolve/").len();
    scene.pull().unwrap();
    assert_eq!(scene.server.seen("/resolve/").len(), requests);

    let mut bytes = model_bytes();
    bytes[7] ^= 1;
    fs::write(scene.path(MODEL), bytes).unwrap();
    scene.pull().unwrap();
    scene.assert_pulled();
    assert_eq!(scene.server.seen("/resolve/").len(), requests + 1);
}

#[test]
fn token_reaches_the_hub_but_not_the_host_it_redirects_to() {
    let scene = Scene::with_token(Some("hf_secret"));
    let mut state = State::default();
    state.files.insert(MODEL.to_owned(), (model_bytes(), true));
    state.files.insert("config.json".to_owned(), (b"{\"a\": 1}\n".to_vec(), false));
    let cdn = Server::start(state);
    scene.server.change(|state| state.cdn = Some(cdn.address));
    // Resuming goes through the hub each time, as its redirects expire.
    cdn.fail("model.onnx", &[Fault::Cut(1000)]);
    scene.pull().unwrap();
    scene.assert_pulled();
    let at_hub = scene.server.seen("");
    assert!(at_hub.iter().all(|seen| seen.header("authorization") == Some("Bearer hf_secret")));
    let at_cdn = cdn.seen("");
    assert_eq!(at_cdn.len(), 3);
    assert!(at_cdn.iter().all(|seen| seen.header("authorization").is_none()));
    assert_eq!(at_cdn[2].header("range"), Some("bytes=1000-"));
}

#[test]
fn token_is_kept_on_a_redirect_within_the_hub() {
    let scene = Scene::with_token(Some("hf_secret"));
    scene.server.fail("/revision/old", &[Fault::Redirect("/api/models/owner/model/revision/new")]);
    scene.hub.list(&repository(), "old").unwrap();
    assert_eq!(
        scene.server.seen("/revision/new")[0].header("authorization"),
        Some("Bearer hf_secret")
    );
}

#[test]
fn redirects_that_lead_nowhere_are_an_error() {
    for target in ["/api/models/owner/model/revision/main", "ftp://elsewhere/", ""] {
        let scene = Scene::new();
        scene.server.fail("/revision/main", &[Fault::Redirect(target); 20]);
        let error = scene.list().unwrap_err();
        assert!(error.to_string().contains("redirect"), "{error}");
        assert!(scene.server.seen("").len() <= 11);
    }
}

#[test]
fn refusals_say_what_to_do_and_are_not_repeated() {
    for (status, token, hint) in [
        (401, None, "set HF_TOKEN"),
        (403, Some("hf_secret"), "accept its terms"),
        (404, None, "check the name and the revision"),
        (418, None, "HTTP status 418"),
    ] {
        for path in ["/revision/", "model.onnx"] {
            let scene = Scene::with_token(token);
            scene.server.fail(path, &[Fault::Status(status)]);
            let error = scene.pull().unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
            assert!(error.contains("owner/model"), "{error}");
            assert!(!error.contains("hf_secret"), "{error}");
            assert!(scene.waits().is_empty());
        }
    }
}

#[test]
fn trouble_that_may_pass_is_borne_up_to_the_limit() {
    for (status, hint) in [(429, "wait for 7 s"), (500, "try again later"), (503, "HTTP 503")] {
        for path in ["/revision/", "/tree/", "model.onnx"] {
            let scene = Scene::new();
            scene.server.fail(path, &[Fault::Status(status); 2]);
            scene.pull().unwrap();
            scene.assert_pulled();
            assert_eq!(scene.waits(), [1, 2]);

            let scene = Scene::new();
            scene.server.fail(path, &[Fault::Status(status); 3]);
            let error = scene.pull().unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
            assert_eq!(scene.waits(), [1, 2]);
        }
    }
}

#[test]
fn listing_that_breaks_off_is_asked_for_again() {
    let scene = Scene::new();
    scene.server.fail("/tree/", &[Fault::Cut(20)]);
    assert_eq!(scene.list().unwrap().files.len(), 3);
    assert_eq!(scene.waits(), [1]);
}

#[test]
fn paths_that_lead_out_of_the_folder_are_refused() {
    let scene = Scene::new();
    let id = "0".repeat(40);
    for path in ["../evil", "/etc/evil", "a/../../evil"] {
        let entry =
            format!("{{\"type\":\"file\",\"path\":\"{path}\",\"oid\":\"{id}\",\"size\":1}}");
        scene.server.change(|state| state.more_entries = vec![entry]);
        let error = scene.pull().unwrap_err();
        assert!(matches!(&error, HubError::UnsafePath { path: found, .. } if found == path));
    }
    assert!(scene.server.seen("/resolve/").is_empty());
}

#[test]
fn answers_that_make_no_sense_are_refused() {
    for entry in [
        "{\"type\":\"file\",\"path\":\"a\",\"oid\":\"\",\"size\":1}",
        "{\"type\":\"file\",\"path\":\"a\",\"oid\":\"\",\"size\":1,\"lfs\":{\"oid\":\"x\",\"size\":1}}",
        "not JSON",
    ] {
        let scene = Scene::new();
        scene.server.change(|state| state.more_entries = vec![entry.to_owned()]);
        let error = scene.list().unwrap_err();
        assert!(matches!(error, HubError::BadAnswer { .. }), "{error}");
    }
}

#[test]
fn two_downloads_into_one_folder_do_not_meet() {
    let scene = Scene::new();
    let listing = scene.list().unwrap();
    let mut inner = None;
    let outer = scene.hub.download(&listing, |_| true, scene.folder.path(), &mut |_| {
        inner.get_or_insert_with(|| scene.pull());
    });
    assert!(matches!(inner, Some(Err(HubError::Busy { .. }))));
    outer.unwrap();
    scene.pull().unwrap();
}

#[test]
fn progress_ends_with_everything_there() {
    let scene = Scene::new();
    let listing = scene.list().unwrap();
    let mut steps = Vec::new();
    scene
        .hub
        .download(&listing, |_| true, scene.folder.path(), &mut |progress| {
            assert_eq!(progress.total, 1_200_018);
            assert!(progress.file_done <= progress.file.size);
            steps.push(progress.done);
        })
        .unwrap();
    assert!(steps.is_sorted());
    assert_eq!(steps.last(), Some(&1_200_018));
}

#[test]
fn hub_that_cannot_be_reached_is_named_at_once() {
    let scene = Scene::new();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let retry = Retry { failure_limit: 3, wait: Box::new(|_| panic!("must not wait")) };
    let hub = Hub::new(&format!("http://{closed}"), None).unwrap().with_retry(retry);
    let error = hub.list(&repository(), "main").unwrap_err();
    assert!(matches!(error, HubError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
    drop(scene);
}

#[cfg(target_os = "linux")]
#[test]
fn full_disk_says_how_much_is_missing() {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("onnx")).unwrap();
    // A device that has no room, ever.
    std::os::unix::fs::symlink("/dev/full", scene.part()).unwrap();
    let error = scene.pull().unwrap_err();
    assert!(matches!(error, HubError::DiskFull { byte_len: 1_200_000, .. }), "{error}");
    assert!(error.to_string().contains("free some"), "{error}");
}
