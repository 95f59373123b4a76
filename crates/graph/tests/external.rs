//! Weights in files beside the model: only plain files inside its folder, and never read into
//! memory.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

#[path = "exercise/counting.rs"]
mod counting;
mod samples;

use std::fs::{self, File};
use std::path::Path;

use counting::{Counting, peak_of};
use holdfast_graph::proto::{DataLocation, StringStringEntryProto, TensorProto};
use holdfast_graph::{DataType, Message, Model, Tensor, weights};
use samples::{matrix, model};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A folder with `model/model.onnx`, whose weight of these dimensions is external as the entries
/// say.
struct Folder {
    root: tempfile::TempDir,
}

impl Folder {
    fn new(dims: &[i64], entries: &[(&str, &str)]) -> Folder {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("model")).unwrap();
        let mut proto = model(&["a"], |builder| {
            let weight = builder.initializer("w", &matrix([1.0, 2.0, 3.0, 4.0]));
            builder.node("Add", &["a", &weight], &[])
        })
        .into_proto();
        let entry = |(key, value): &(&str, &str)| StringStringEntryProto {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
        };
        proto.graph.as_mut().unwrap().initializer = vec![TensorProto {
            name: "w".to_owned(),
            dims: dims.to_vec(),
            data_type: DataType::F32.to_onnx(),
            data_location: DataLocation::External as i32,
            external_data: entries.iter().map(entry).collect(),
            ..TensorProto::default()
        }];
        let folder = Folder { root };
        fs::write(folder.path().join("model.onnx"), proto.encode_to_vec()).unwrap();
        fs::write(folder.path().join("weights"), four(0.0)).unwrap();
        fs::write(folder.root.path().join("outside"), four(9.0)).unwrap();
        folder
    }

    fn path(&self) -> std::path::PathBuf {
        self.root.path().join("model")
    }

    fn weight(&self) -> Result<Tensor, String> {
        let model = Model::open(self.path().join("model.onnx")).map_err(|e| e.to_string())?;
        Ok(weights::weights(&model).remove(0).tensor)
    }
}

fn four(first: f32) -> Vec<u8> {
    [first, 1.0, 2.0, 3.0].iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The message for a 2 × 2 weight with these entries.
fn refusal(entries: &[(&str, &str)]) -> String {
    let error = Folder::new(&[2, 2], entries).weight().unwrap_err();
    error.strip_prefix("external data of tensor `w`: ").expect(&error).to_owned()
}

#[test]
fn a_weight_is_found_in_its_file_at_its_offset() {
    let folder = Folder::new(&[2, 2], &[("location", "weights")]);
    assert_eq!(folder.weight().unwrap(), matrix([0.0, 1.0, 2.0, 3.0]));
    let part = [("location", "./weights"), ("offset", "4"), ("length", "8")];
    let folder = Folder::new(&[2], &part);
    assert_eq!(folder.weight().unwrap(), Tensor::from_slice(&[2], &[1.0f32, 2.0]).unwrap());
}

#[test]
fn a_model_that_was_read_is_like_any_other() {
    let folder = Folder::new(&[2, 2], &[("location", "weights")]);
    let read = Model::open(folder.path().join("model.onnx")).unwrap();
    assert_eq!(Model::from_bytes(holdfast_graph::encode(&read).into()).unwrap(), read);
    let bytes = fs::read(folder.path().join("model.onnx")).unwrap();
    let error = Model::from_bytes(bytes.into()).unwrap_err().to_string();
    assert!(error.ends_with("the model was read from memory, so `weights` has no folder to be in"));
}

#[test]
fn files_outside_the_folder_are_refused() {
    let outside = |location: &str| {
        let expected = format!("`{location}` must be a plain file inside the model's folder");
        assert_eq!(refusal(&[("location", location)]), expected);
    };
    outside("../outside");
    outside("sub/../../outside");
    outside("/etc/hostname");
    outside("");
    outside(".");
    outside("..");
    outside("weights\0");
}

#[test]
fn a_folder_is_no_file() {
    let folder = Folder::new(&[2, 2], &[("location", "sub")]);
    fs::create_dir(folder.path().join("sub")).unwrap();
    let error = folder.weight().unwrap_err();
    assert!(error.ends_with("`sub` must be a plain file inside the model's folder"), "{error}");
}

#[cfg(unix)]
#[test]
fn links_may_not_lead_out_of_the_folder() {
    use std::os::unix::fs::symlink;
    let linked = |target: &str, location: &str| {
        let folder = Folder::new(&[2, 2], &[("location", location)]);
        symlink(target, folder.path().join("link")).unwrap();
        folder.weight()
    };
    assert_eq!(linked("weights", "link").unwrap(), matrix([0.0, 1.0, 2.0, 3.0]));
    for (target, location) in
        [("../outside", "link"), ("..", "link/outside"), ("/etc", "link/hostname")]
    {
        let error = linked(target, location).unwrap_err();
        assert!(error.contains("must be a plain file inside the model's folder"), "{error}");
    }
}

#[test]
fn missing_files_and_impossible_places_are_named() {
    let error = refusal(&[("location", "absent")]);
    assert!(error.starts_with("cannot read `absent`: "), "{error}");
    assert_eq!(refusal(&[]), "it names no file (`location` is missing)");
    let placed = |key, value| refusal(&[("location", "weights"), (key, value)]);
    assert_eq!(placed("offset", "1"), "bytes 1..17 lie beyond the end of `weights` (16 bytes)");
    assert_eq!(
        placed("offset", "18446744073709551615"),
        "bytes 18446744073709551615..18446744073709551615 lie beyond the end of `weights` (16 bytes)"
    );
    assert_eq!(placed("offset", "-1"), "`offset` is `-1`, not a number");
    assert_eq!(placed("length", "many"), "`length` is `many`, not a number");
    assert_eq!(placed("length", "17"), "f32[2, 2] takes 16 bytes, but 17 are there");
    let folder = Folder::new(&[1 << 40, 1 << 10], &[("location", "weights")]);
    assert!(folder.weight().unwrap_err().contains("lie beyond the end"));
    let folder = Folder::new(&[-1], &[("location", "weights")]);
    assert!(folder.weight().unwrap_err().ends_with("dimension -1 is negative"));
}

#[test]
fn more_than_two_gigabytes_are_mapped_and_not_read() {
    const GIGABYTES: u64 = 5;
    let rows = (GIGABYTES << 30) as i64 / 4096;
    let folder = Folder::new(&[rows, 1024], &[("location", "large")]);
    // A hole in a file takes no room on disk.
    File::create(folder.path().join("large")).unwrap().set_len(GIGABYTES << 30).unwrap();
    let (weight, peak) = peak_of(|| folder.weight().unwrap());
    assert!(peak < 100_000, "{peak} bytes");
    assert_eq!(weight.bytes().len() as u64, GIGABYTES << 30);
    assert!(resident_bytes(&folder.path().join("large")) < 1 << 20);
    let last = weight.bytes().slice(weight.bytes().len() - 4096..);
    assert!(last.iter().all(|&byte| byte == 0));
}

/// What of a file takes room on disk: a proof that nothing wrote to it.
fn resident_bytes(path: &Path) -> u64 {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(path).unwrap().blocks() * 512
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        0
    }
}
