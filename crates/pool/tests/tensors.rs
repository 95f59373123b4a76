//! Shared tensors on the real engine: bytes that travel to a device and back.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use holdfast_devices::Device;
use holdfast_graph::{DataType, Tensor};
use holdfast_models::Store;
use holdfast_models::tensors::{Compression, SavedLimits, SavedTensors};
use holdfast_pool::{Home, Pool, PoolOptions, SaveOptions, SharedTensorError};
use holdfast_tensors::{Key, NewTensor, Span};

fn pool(budget: u64) -> (Pool, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(folder.path()).unwrap());
    let options = PoolOptions { shared_tensor_bytes: budget, ..PoolOptions::default() };
    (Pool::new(store, options).unwrap(), folder)
}

fn cpu() -> Home {
    Home::Device("cpu".to_owned())
}

fn matrix() -> Tensor {
    Tensor::from_slice(&[3, 4], &(0..12).map(|value| value as f32).collect::<Vec<_>>()).unwrap()
}

#[tokio::test]
async fn a_tensor_and_a_view_of_it_travel_to_a_device_and_back() {
    let (pool, _folder) = pool(1 << 20);
    let tensors = pool.tensors();
    let register = |manager: &mut holdfast_tensors::TensorSharingManager| {
        manager.register("m", matrix().into())
    };
    let there = tensors.with(&Home::Host, register).await.unwrap().unwrap();
    let on_device = tensors.copy(&Home::Host, there, &cpu(), Key::new("", "m")).await.unwrap();
    assert_eq!(pool.engine().stats().await.unwrap().tensors, 1, "the bytes are on the device");

    let spans = [Span::new(0, 3), Span::new(1, 2)];
    let view = tensors.with(&cpu(), |m| m.create_view(on_device, "columns", &spans)).await.unwrap();
    let view = view.unwrap();
    for (id, expected) in [
        (on_device, matrix()),
        (view, Tensor::from_slice(&[3, 2], &[1f32, 2.0, 5.0, 6.0, 9.0, 10.0]).unwrap()),
    ] {
        let back = tensors.copy(&cpu(), id, &Home::Host, Key::new("", "back")).await.unwrap();
        let read =
            |m: &mut holdfast_tensors::TensorSharingManager| m.tensor(back).unwrap().to_tensor();
        assert_eq!(tensors.with(&Home::Host, read).await.unwrap().unwrap(), expected);
    }
    let freed = tensors.with(&cpu(), |manager| manager.optimize_memory_usage()).await.unwrap();
    assert_eq!(freed.bytes_after, 0);
    assert_eq!(pool.engine().stats().await.unwrap().tensors, 0, "and are let go there too");
}

#[tokio::test]
async fn tensors_of_every_type_travel_to_the_engine_and_back() {
    let (pool, _folder) = pool(1 << 20);
    let tensors = pool.tensors();
    for dtype in [DataType::Bf16, DataType::I64, DataType::Bool, DataType::I4, DataType::U2] {
        let len = dtype.byte_len(9).unwrap() as usize;
        let tensor = Tensor::new(dtype, vec![9], vec![1; len].into()).unwrap();
        let id = tensors.with(&Home::Host, |m| m.register("t", tensor.clone().into())).await;
        let id = id.unwrap().unwrap();
        let there = tensors.copy(&Home::Host, id, &cpu(), Key::new("", "t")).await.unwrap();
        let back = tensors.copy(&cpu(), there, &Home::Host, Key::new("", "back")).await.unwrap();
        let back = tensors.with(&Home::Host, |m| m.tensor(back).unwrap().to_tensor()).await;
        assert_eq!(back.unwrap().unwrap(), tensor);
    }
}

#[tokio::test]
async fn what_does_not_fit_or_has_nowhere_to_go_leaves_everything_as_it_was() {
    let (pool, _folder) = pool(64);
    let tensors = pool.tensors();
    let new = |name: &'static str| {
        move |manager: &mut holdfast_tensors::TensorSharingManager| {
            let id = manager.register(name, NewTensor::from(matrix()))?;
            manager.acquire(id, "a model").map(|_| id)
        }
    };
    let there = tensors.with(&Home::Host, new("m")).await.unwrap().unwrap();
    let nowhere = Home::Device("elsewhere".to_owned());
    let error = tensors.copy(&Home::Host, there, &nowhere, Key::new("", "m")).await.unwrap_err();
    assert!(matches!(&error, SharedTensorError::NoDevice(name) if name == "elsewhere"), "{error}");
    let error = tensors.with(&nowhere, |manager| manager.stats()).await.unwrap_err();
    assert!(
        matches!(&error, SharedTensorError::NoDevice(_)),
        "a name alone makes no home: {error}"
    );

    let held = tensors.copy(&Home::Host, there, &cpu(), Key::new("", "m")).await.unwrap();
    tensors.with(&cpu(), |manager| manager.acquire(held, "a model")).await.unwrap().unwrap();
    let error = tensors.copy(&Home::Host, there, &cpu(), Key::new("", "n")).await.unwrap_err();
    assert!(matches!(error, SharedTensorError::Sharing(_)), "{error}");
    assert_eq!(pool.engine().stats().await.unwrap().tensors, 1);
    // What was not held any more makes room.
    assert!(tensors.with(&cpu(), |manager| manager.release(held, "a model")).await.unwrap());
    tensors.copy(&Home::Host, there, &cpu(), Key::new("", "n")).await.unwrap();
    assert_eq!(pool.engine().stats().await.unwrap().tensors, 1);
}

#[tokio::test]
async fn a_tensor_that_nobody_uses_goes_once_it_is_too_old_and_one_that_is_pinned_stays() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(folder.path()).unwrap());
    let shared_tensor_age = Some(Duration::ZERO);
    let pool = Pool::new(store, PoolOptions { shared_tensor_age, ..PoolOptions::default() });
    let pool = pool.unwrap();
    let tensors = pool.tensors();
    let add = async |name: &str| {
        let id = tensors.with(&Home::Host, |m| m.register(name, matrix().into())).await;
        id.unwrap().unwrap()
    };
    let held = add("held").await;
    tensors.with(&Home::Host, |m| m.pin(held)).await.unwrap().unwrap();
    let idle = add("idle").await;
    let is_there = async |id| tensors.with(&Home::Host, |m| m.tensor(id).is_some()).await.unwrap();
    let wait = async {
        while is_there(idle).await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect("it stays");
    assert!(is_there(held).await);
}

#[tokio::test]
async fn what_is_saved_is_there_again_in_another_pool_until_it_is_too_old() {
    let folder = tempfile::tempdir().unwrap();
    let start = |max_age: Option<Duration>| {
        let store = Arc::new(Store::open(folder.path()).unwrap());
        let saved_tensors = SavedLimits { max_bytes: 1 << 20, max_age };
        Pool::new(store, PoolOptions { saved_tensors, ..PoolOptions::default() }).unwrap()
    };
    let key = |name| Key::new("mine", name);
    let expected = Tensor::from_slice(&[3, 2], &[1f32, 2.0, 5.0, 6.0, 9.0, 10.0]).unwrap();
    {
        let first = start(None);
        let tensors = first.tensors();
        let whole = tensors.with(&Home::Host, |m| m.register(key("m"), matrix().into())).await;
        let whole = whole.unwrap().unwrap();
        tensors.save(&Home::Host, whole, SaveOptions::default()).await.unwrap();
        // A view of a device's tensor is saved as what it shows.
        let there = tensors.copy(&Home::Host, whole, &cpu(), key("m")).await.unwrap();
        let spans = [Span::new(0, 3), Span::new(1, 2)];
        let view = tensors.with(&cpu(), |m| m.create_view(there, "part", &spans)).await;
        let zstd = SaveOptions { compression: Compression::Zstd };
        let saved = tensors.save(&cpu(), view.unwrap().unwrap(), zstd).await.unwrap();
        assert_eq!((saved.name.as_str(), saved.dims.as_slice()), ("part", &[3, 2][..]));
        let free = tensors.with(&cpu(), |m| m.can_be_freed(there)).await.unwrap();
        assert!(free, "saving keeps nothing");
    }
    let second = start(Some(Duration::from_secs(3600)));
    let tensors = second.tensors();
    for (name, expected) in [("m", &matrix()), ("part", &expected)] {
        let id = tensors.restore(key(name)).await.unwrap().unwrap();
        let back = tensors.with(&Home::Host, |m| m.tensor(id).unwrap().to_tensor()).await;
        assert_eq!(back.unwrap().unwrap(), *expected);
    }
    assert_eq!(tensors.restore(key("other")).await.unwrap(), None);
    assert_eq!(tensors.restore(Key::new("yours", "m")).await.unwrap(), None);

    // One from long ago is not restored, and its file goes.
    let limits = SavedLimits { max_bytes: 1 << 20, max_age: None };
    let saved = SavedTensors::open(folder.path().join("tensors"), limits).unwrap();
    let then = UNIX_EPOCH + Duration::from_secs(1);
    saved.save("mine", "m", &matrix(), Compression::None, then).unwrap();
    let third = start(Some(Duration::from_secs(3600)));
    assert_eq!(third.tensors().restore(key("m")).await.unwrap(), None);
    assert!(third.tensors().restore(key("part")).await.unwrap().is_some());
    assert_eq!(saved.list("mine").unwrap().0.len(), 1);

    // What is there can be told, and removed.
    let tensors = third.tensors();
    let names = async |namespace: &str| -> Vec<String> {
        let saved = tensors.saved(namespace).await.unwrap();
        saved.into_iter().map(|saved| saved.name).collect()
    };
    assert_eq!(names("mine").await, ["part"]);
    assert_eq!(names("yours").await, [""; 0]);
    assert!(tensors.remove_saved(key("part")).await.unwrap());
    assert!(!tensors.remove_saved(key("part")).await.unwrap());
    assert_eq!(names("mine").await, [""; 0]);
}
