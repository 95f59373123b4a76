//! Copies to devices that hang, lose what they have and go.

use std::future::Future;
use std::task::{Context, Poll, Waker};

use holdfast_devices::{Device, ErrorKind};

use super::*;
use crate::scheduler::queue::Wanted;
use crate::scripted::{CHOICE, Deed, Scene, Scripted};

struct Shared {
    tensors: SharedTensors,
    scene: Scene,
    home: Home,
    /// A tensor of the host.
    source: TensorId,
}

async fn shared(device: &Scripted) -> Shared {
    let scene = Scene::new(&[device]);
    // Nothing is saved here.
    let (folder, on_disk) = (PathBuf::new(), SavedLimits { max_bytes: 0, max_age: None });
    let limits = Limits::budget(64);
    let tensors = SharedTensors::new(scene.scheduler.clone(), limits, folder, on_disk);
    let tensor = Tensor::from_slice(&[4], &[1f32, 2.0, 3.0, 4.0]).unwrap();
    let source = tensors.with(&Home::Host, |manager| manager.register("t", tensor.into())).await;
    let source = source.unwrap().unwrap();
    Shared { tensors, scene, home: Home::Device(device.info().name.clone()), source }
}

impl Shared {
    async fn send(&self, name: &str) -> Result<TensorId, SharedTensorError> {
        self.tensors.copy(&Home::Host, self.source, &self.home, Key::new("", name)).await
    }

    async fn fetch(&self, id: TensorId) -> Result<TensorId, SharedTensorError> {
        self.tensors.copy(&self.home, id, &Home::Host, Key::new("", "back")).await
    }
}

#[tokio::test]
async fn a_copy_that_nobody_waits_for_any_more_leaves_nothing() {
    let device = Scripted::new("a").puts([Deed::Hang]);
    let shared = shared(&device).await;
    {
        let mut copy = Box::pin(shared.send("t"));
        let mut context = Context::from_waker(Waker::noop());
        while device.kept() == 0 {
            assert!(matches!(copy.as_mut().poll(&mut context), Poll::Pending));
            tokio::task::yield_now().await;
        }
        let arriving = shared.tensors.with(&shared.home, |manager| manager.stats()).await.unwrap();
        assert_eq!((arriving.arriving, arriving.bytes), (1, 16));
    }
    let after = shared.tensors.with(&shared.home, |manager| manager.stats()).await.unwrap();
    assert_eq!((after.arriving, after.bytes), (0, 0));
    let free =
        shared.tensors.with(&Home::Host, |manager| manager.can_be_freed(shared.source)).await;
    assert!(free.unwrap(), "the source is not kept any longer");
    while device.kept() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn within_a_device_bytes_do_not_leave_it() {
    let device = Scripted::new("a");
    let shared = shared(&device).await;
    let there = shared.send("t").await.unwrap();
    let Shared { tensors, home, .. } = &shared;
    let spans = [holdfast_tensors::Span::new(1, 2).every(2)];
    let view = tensors.with(home, |manager| manager.create_view(there, "v", &spans)).await;
    let copy = tensors.copy(home, view.unwrap().unwrap(), home, Key::new("", "c")).await.unwrap();
    let asked = device.log().iter().filter(|line| line.starts_with("copy")).count();
    assert_eq!((asked, device.kept()), (1, 2));
    let back = shared.fetch(copy).await.unwrap();
    let back = tensors.with(&Home::Host, |m| m.tensor(back).unwrap().to_tensor()).await;
    assert_eq!(back.unwrap().unwrap().to_vec::<f32>().unwrap(), [2.0, 4.0]);
}

#[tokio::test]
async fn a_device_that_lost_everything_begins_anew_and_old_ids_mean_nothing() {
    let device = Scripted::new("a");
    let shared = shared(&device).await;
    let before = shared.send("t").await.unwrap();
    device.lose();
    shared.scene.scheduler.refresh();
    let after = shared.send("u").await.unwrap();
    let gone = shared.fetch(before).await.unwrap_err();
    assert!(matches!(gone, SharedTensorError::Sharing(SharingError::Gone { .. })), "{gone}");
    shared.fetch(after).await.unwrap();
    let there = shared.tensors.with(&shared.home, |manager| manager.stats()).await.unwrap();
    assert_eq!((there.tensors, device.kept()), (1, 1));
}

#[tokio::test]
async fn a_loss_under_a_copy_is_told_and_ends_what_was_there() {
    let device = Scripted::new("a");
    let shared = shared(&device).await;
    let before = shared.send("t").await.unwrap();
    let device = device.puts([Deed::Fail(ErrorKind::StateLost)]);
    let lost = shared.send("u").await.unwrap_err();
    assert!(
        matches!(&lost, SharedTensorError::Device(error) if error.kind() == ErrorKind::StateLost),
        "{lost}"
    );
    let gone = shared.fetch(before).await.unwrap_err();
    assert!(matches!(gone, SharedTensorError::Sharing(SharingError::Gone { .. })), "{gone}");
    let there = shared.tensors.with(&shared.home, |manager| manager.stats()).await.unwrap();
    assert_eq!((there.tensors, there.arriving), (0, 0));
    assert_eq!(device.kept(), 0);
}

#[tokio::test]
async fn managers_of_devices_that_went_go_too() {
    let first = Scripted::new("0");
    let shared = shared(&first).await;
    shared.send("t").await.unwrap();
    for number in 1..20 {
        let device = Scripted::new(&number.to_string());
        shared.scene.attach(&device, 1);
        first.go();
        shared.scene.scheduler.refresh();
        let home = Home::Device(number.to_string());
        shared.tensors.with(&home, |_| ()).await.unwrap();
        device.go();
    }
    shared.scene.scheduler.refresh();
    assert_eq!(shared.scene.scheduler.count(Wanted::new(CHOICE, false)), 0);
    assert!(lock(&shared.tensors.shared.managers).len() <= 3);
    let gone = shared.send("t").await.unwrap_err();
    assert!(matches!(gone, SharedTensorError::NoDevice(_)), "{gone}");
}
