//! Tensors on disk: saved, read again, damaged, too old, too many, and killed while they are
//! written.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests may")]

mod crash;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_graph::{DataType, Tensor};
use holdfast_models::StoreError;
use holdfast_models::tensors::{Compression, SavedLimits, SavedTensors};
use tempfile::TempDir;

const UNLIMITED: SavedLimits = SavedLimits { max_bytes: u64::MAX, max_age: None };

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn opened(limits: SavedLimits) -> (TempDir, SavedTensors) {
    let folder = TempDir::new().unwrap();
    let saved = SavedTensors::open(folder.path(), limits).unwrap();
    (folder, saved)
}

/// Bytes without a pattern that packing could use.
fn noise(count: usize) -> Tensor {
    let mut state = 1u64;
    let bytes: Vec<u8> = (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    Tensor::new(DataType::U8, vec![count], bytes.into()).unwrap()
}

fn files(folder: &TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|found| found == "tensor")).collect()
}

#[test]
fn what_was_saved_is_there_after_a_restart() {
    let (folder, saved) = opened(UNLIMITED);
    let floats = Tensor::from_slice(&[2, 2], &[1f32, 2.0, 3.0, 4.0]).unwrap();
    let packed = Tensor::new(DataType::I4, vec![3], vec![0x21, 0x03].into()).unwrap();
    let empty = Tensor::new(DataType::F32, vec![0, 3], vec![].into()).unwrap();
    let scalar = Tensor::from_slice(&[], &[7i64]).unwrap();
    let large = noise((1 << 20) * 2 + 17);
    let exact = noise(1 << 20);
    let tensors = [floats, packed, empty, scalar, large, exact];
    for compression in [Compression::None, Compression::Zstd] {
        for (number, tensor) in tensors.iter().enumerate() {
            saved.save("a", &format!("t/{number}"), tensor, compression, at(1)).unwrap();
        }
        let again = SavedTensors::open(folder.path(), UNLIMITED).unwrap();
        for (number, tensor) in tensors.iter().enumerate() {
            let loaded = again.load("a", &format!("t/{number}"), at(2)).unwrap();
            assert_eq!(loaded.as_ref(), Some(tensor));
        }
    }
    assert_eq!(saved.load("a", "t/99", at(2)).unwrap(), None);
    assert_eq!(saved.load("b", "t/0", at(2)).unwrap(), None, "another namespace");
}

#[test]
fn packing_makes_what_repeats_smaller() {
    let (_folder, saved) = opened(UNLIMITED);
    let mask = Tensor::zeros(DataType::I64, &[1 << 18]).unwrap();
    let plain = saved.save("", "mask", &mask, Compression::None, at(1)).unwrap();
    let packed = saved.save("", "mask", &mask, Compression::Zstd, at(1)).unwrap();
    assert!(plain.file_bytes > plain.byte_len);
    assert!(packed.file_bytes < packed.byte_len / 100, "{packed:?}");
    assert_eq!(saved.total_bytes().unwrap(), packed.file_bytes, "it took the other's place");
}

#[test]
fn streams_in_pieces() {
    let (_folder, saved) = opened(UNLIMITED);
    let tensor = noise((3 << 20) + 5);
    let dims = tensor.dims().to_vec();
    let mut writer = saved.writer("", "t", DataType::U8, &dims, Compression::Zstd, at(1)).unwrap();
    for part in tensor.bytes().chunks(70_001) {
        writer.write_all(part).unwrap();
    }
    assert_eq!(saved.load("", "t", at(1)).unwrap(), None, "it is not there before it is finished");
    writer.finish().unwrap();
    let mut reader = saved.reader("", "t", at(1)).unwrap().unwrap();
    let mut sizes = Vec::new();
    let mut bytes = Vec::new();
    while let Some(piece) = reader.next_piece().unwrap() {
        sizes.push(piece.len());
        bytes.extend(piece);
    }
    assert_eq!(sizes, [1 << 20, 1 << 20, 1 << 20, 5]);
    assert_eq!(bytes, tensor.bytes()[..]);
}

#[test]
fn a_tensor_of_another_length_is_not_saved() {
    let (folder, saved) = opened(UNLIMITED);
    saved.save("", "t", &noise(4), Compression::None, at(1)).unwrap();
    let writer = || saved.writer("", "t", DataType::U8, &[10], Compression::None, at(2)).unwrap();
    let mut short = writer();
    short.write_all(&[0; 9]).unwrap();
    let error = short.finish().unwrap_err();
    assert!(matches!(error, StoreError::WrongTensorLength { expected: 10, found: 9, .. }));
    assert!(writer().write_all(&[0; 11]).is_err());
    drop(writer());
    assert_eq!(saved.load("", "t", at(2)).unwrap(), Some(noise(4)), "the old one stays");
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 2, "one tensor and the lock");
    let strings = saved.writer("", "s", DataType::String, &[1], Compression::None, at(2));
    assert!(matches!(strings.err(), Some(StoreError::NotASavableTensor { .. })));
}

#[test]
fn no_damage_goes_unnoticed() {
    for compression in [Compression::None, Compression::Zstd] {
        let (folder, saved) = opened(UNLIMITED);
        let tensor = noise((1 << 20) + 300);
        saved.save("", "t", &tensor, compression, at(1)).unwrap();
        let path = files(&folder).remove(0);
        let whole = fs::read(&path).unwrap();
        let check = |bytes: &[u8], what: &str| {
            fs::write(&path, bytes).unwrap();
            let loaded = saved.load("", "t", at(1));
            assert!(matches!(loaded, Err(StoreError::DamagedTensor { .. })), "{what}: {loaded:?}");
            // No piece that was handed out is wrong.
            if let Ok(Some(mut reader)) = saved.reader("", "t", at(1)) {
                let mut read = Vec::new();
                while let Ok(Some(piece)) = reader.next_piece() {
                    read.extend(piece);
                }
                assert_eq!(read, tensor.bytes()[..read.len()], "{what}");
            }
        };
        let len = whole.len();
        for length in [0, 7, 15, 40, 150, 250, len / 2, len - 400, len - 36, len - 1] {
            check(&whole[..length], &format!("cut to {length}"));
        }
        for at in [0, 13, 20, 100, 190, 250, len / 2, len - 300, len - 34, len - 1] {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            check(&changed, &format!("byte {at} changed"));
        }
        fs::write(&path, &whole).unwrap();
        assert_eq!(saved.load("", "t", at(1)).unwrap(), Some(tensor));
    }
}

#[test]
fn a_file_under_another_name_and_a_newer_format_are_refused() {
    let (folder, saved) = opened(UNLIMITED);
    saved.save("", "t", &noise(3), Compression::None, at(1)).unwrap();
    let t = files(&folder).remove(0);
    saved.save("", "u", &noise(4), Compression::None, at(1)).unwrap();
    let u = files(&folder).into_iter().find(|path| *path != t).unwrap();
    fs::copy(&t, &u).unwrap();
    assert!(matches!(saved.load("", "u", at(1)), Err(StoreError::DamagedTensor { .. })));
    let mut newer = fs::read(&t).unwrap();
    newer[8] = 2;
    fs::write(&u, newer).unwrap();
    assert!(matches!(saved.load("", "u", at(1)), Err(StoreError::NewerFormat { found: 2, .. })));
    let (listed, unreadable) = saved.list("").unwrap();
    assert_eq!((listed.len(), unreadable.len()), (1, 1), "one does not hide the other");
    assert!(saved.remove("", "u").unwrap(), "what is damaged can be removed");
    assert!(!saved.remove("", "u").unwrap());
    assert_eq!(saved.load("", "t", at(1)).unwrap(), Some(noise(3)));
}

#[test]
fn old_tensors_expire() {
    let limits = SavedLimits { max_age: Some(Duration::from_secs(10)), ..UNLIMITED };
    let (folder, saved) = opened(limits);
    saved.save("", "old", &noise(3), Compression::None, at(100)).unwrap();
    saved.save("", "new", &noise(3), Compression::None, at(105)).unwrap();
    assert!(saved.load("", "old", at(110)).unwrap().is_some(), "just as old as allowed");
    assert_eq!(saved.load("", "old", at(111)).unwrap(), None);
    assert_eq!(saved.expire(at(110)).unwrap(), 0);
    assert_eq!(saved.expire(at(111)).unwrap(), 1);
    assert_eq!(files(&folder).len(), 1);
    assert!(saved.load("", "new", at(111)).unwrap().is_some());
    assert!(saved.load("", "new", at(50)).unwrap().is_some(), "a clock that was set back");
}

#[test]
fn the_oldest_go_when_there_are_too_many() {
    let (_folder, saved) = opened(SavedLimits { max_bytes: 7000, max_age: None });
    for (name, second) in [("b", 2), ("a", 1), ("c", 3)] {
        saved.save("", name, &noise(2000), Compression::None, at(second)).unwrap();
    }
    let names = || -> Vec<String> {
        saved.list("").unwrap().0.into_iter().map(|tensor| tensor.name).collect()
    };
    assert_eq!(names(), ["a", "b", "c"]);
    saved.save("other", "d", &noise(2000), Compression::None, at(4)).unwrap();
    assert_eq!(names(), ["b", "c"]);
    assert!(saved.total_bytes().unwrap() <= 7000);
    let error = saved.save("", "e", &noise(8000), Compression::None, at(5)).unwrap_err();
    assert!(matches!(error, StoreError::TensorTooLarge { limit: 7000, .. }), "{error}");
    let error = saved.save("", "e", &noise(8000), Compression::Zstd, at(5)).unwrap_err();
    assert!(matches!(error, StoreError::TensorTooLarge { .. }), "{error}");
    assert_eq!(names(), ["b", "c"], "what does not fit takes nothing away");
}
