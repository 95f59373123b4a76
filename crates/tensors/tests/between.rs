//! Copies between two managers: one of the host and one of a device.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests may")]

use holdfast_graph::{DataType, Tensor};
use holdfast_tensors::{
    Declaration, Departing, Departure, Key, Limits, NewTensor, Place, SharingError, Storage,
    TensorSharingManager,
};

fn managers() -> (TensorSharingManager, TensorSharingManager) {
    let mut host = TensorSharingManager::new(Limits::budget(100));
    let tensor = Tensor::from_slice(&[4], &[1u8, 2, 3, 4]).unwrap();
    host.register("t", NewTensor::from(tensor)).unwrap();
    (host, TensorSharingManager::new(Limits::budget(4)))
}

fn target(departure: &Departure) -> Declaration {
    Declaration {
        dtype: departure.dtype,
        dims: departure.dims.clone(),
        place: Place::device("lane", Storage::WebGpu),
        producer: None,
        consumers: vec![],
    }
}

#[test]
fn both_sides_are_kept_until_the_bytes_have_arrived() {
    let (mut host, mut lane) = managers();
    let source = host.find("t").unwrap().id();
    let departure = host.depart(source).unwrap();
    let arrival = lane.arrive("t", target(&departure)).unwrap();
    assert!(matches!(&departure.content, Departing::Host(bytes) if bytes[..] == [1, 2, 3, 4]));
    assert!(!host.can_be_freed(source));
    assert!(lane.find("t").is_none());
    let other = Tensor::from_slice(&[1], &[0u8]).unwrap();
    let full = lane.register("other", NewTensor::from(other)).unwrap_err();
    assert_eq!(full.kind(), "over_budget");
    let device_name = arrival.device_name.clone().unwrap();
    host.departed(departure);
    let id = lane.arrived(arrival, None).unwrap();
    assert!(host.can_be_freed(source));
    let tensor = lane.tensor(id).unwrap();
    assert_eq!((tensor.device_name(), tensor.dtype()), (Some(&device_name), DataType::U8));
    lane.free(id).unwrap();
    assert_eq!(lane.take_dropped()[0].name, device_name);
    assert_eq!(lane.take_dropped(), []);
}

#[test]
fn an_abandoned_arrival_leaves_nothing() {
    let (mut host, mut lane) = managers();
    let departure = host.depart(host.find("t").unwrap().id()).unwrap();
    let arrival = lane.arrive("t", target(&departure)).unwrap();
    lane.abandon(arrival);
    host.departed(departure);
    assert_eq!((lane.stats().bytes, lane.stats().arriving), (0, 0));
    assert_eq!(lane.take_dropped().len(), 1, "the device may have a part of it");
    let id = host.find("t").unwrap().id();
    assert_eq!(host.free(id), Ok(4));
}

#[test]
fn what_does_not_fit_is_not_awaited() {
    let (mut host, mut lane) = managers();
    let departure = host.depart(host.find("t").unwrap().id()).unwrap();
    let larger = Declaration { dims: vec![5], ..target(&departure) };
    assert!(matches!(lane.arrive("t", larger), Err(SharingError::OverBudget(_))));
    assert_eq!(lane.stats().arriving, 0);
    host.departed(departure);
}

#[test]
fn an_id_means_nothing_to_another_manager() {
    let (host, mut lane) = managers();
    let id = host.find("t").unwrap().id();
    let other = Tensor::from_slice(&[1], &[0u8]).unwrap();
    lane.register("other", NewTensor::from(other)).unwrap();
    assert!(lane.tensor(id).is_none());
    assert_eq!(lane.free(id), Err(SharingError::Gone { id }));
}

#[test]
fn a_manager_that_is_given_up_says_what_it_has_on_devices() {
    let (mut host, mut lane) = managers();
    let departure = host.depart(host.find("t").unwrap().id()).unwrap();
    let arrival = lane.arrive("t", target(&departure)).unwrap();
    let name = arrival.device_name.clone().unwrap();
    lane.arrived(arrival, None).unwrap();
    host.departed(departure);
    let dropped: Vec<_> = lane.into_dropped().into_iter().map(|dropped| dropped.name).collect();
    assert_eq!(dropped, [name]);
    assert_eq!(host.into_dropped(), [], "what is on the host is on no device");
}

#[test]
fn an_error_lists_ones_own_tensors_however_many_others_have_held_theirs_for_longer() {
    let mut manager = TensorSharingManager::new(Limits::budget(100));
    let tensor = || NewTensor::from(Tensor::from_slice(&[4], &[0u8; 4]).unwrap());
    for number in 0..24 {
        let namespace = if number < 20 { "another" } else { "own" };
        let name = format!("t{number}");
        let id = manager.register(Key::new(namespace, &name), tensor()).unwrap();
        manager.pin(id).unwrap();
    }
    let large = Tensor::from_slice(&[50], &[0u8; 50]).unwrap();
    let error = manager.register(Key::new("own", "large"), NewTensor::from(large)).unwrap_err();
    let SharingError::OverBudget(over) = error else { panic!("{error}") };
    let listed: Vec<&str> = over.could_be_freed.iter().map(|held| held.name.as_str()).collect();
    assert_eq!(listed, ["t20", "t21", "t22", "t23"]);
    assert_eq!(over.other_bytes, 80);
}
