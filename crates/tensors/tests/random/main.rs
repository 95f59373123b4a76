//! Random operations, done by the manager and by a reference that is obviously right: every
//! result, everything that can be looked at, and all statistics have to agree.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests may")]

mod reference;

use std::time::Duration;

use holdfast_graph::{DataType, Tensor};
use holdfast_tensors::{
    Copied, Declaration, Key, Limits, NewTensor, Place, Span, Storage, TensorId,
    TensorSharingManager, Transfer,
};
use proptest::prelude::*;
use reference::{Reference, Shape};

/// One operation. Numbers choose among few names, models and earlier tensors, so that the
/// interesting cases happen often.
#[derive(Clone, Debug)]
enum Operation {
    Register { name: usize, size: usize },
    Declare { name: usize, size: usize },
    Get { name: usize },
    Acquire { tensor: usize, model: usize },
    Release { tensor: usize, model: usize },
    Share { tensor: usize, from: usize, to: usize },
    Pin { tensor: usize },
    Unpin { tensor: usize },
    Free { tensor: usize },
    View { tensor: usize, name: usize, offset: usize, size: usize, step: usize },
    CopyToHost { tensor: usize, name: usize },
    CopyToDevice { tensor: usize, name: usize },
    Complete { transfer: usize },
    Fail { transfer: usize },
    ReleaseModel { namespace: usize, model: usize },
    Optimize,
    Advance { by: u64 },
}

const NAMESPACES: [&str; 2] = ["", "other"];
const NAMES: [&str; 3] = ["a", "b", "a name that does not fit into a slot"];
const MODELS: [&str; 3] = ["bert", "vit", "t5"];

fn key(number: usize) -> Key<'static> {
    Key::new(NAMESPACES[number % 2], NAMES[number / 2 % 3])
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    // Recent tensors are chosen more often than others: most older ones are gone.
    let tensor = || prop_oneof![4 => 0usize..4, 1 => 0usize..30];
    let (name, model, size) = (|| 0usize..6, || 0usize..3, || 0usize..7);
    prop_oneof![
        8 => (name(), size()).prop_map(|(name, size)| Register { name, size }),
        2 => (name(), size()).prop_map(|(name, size)| Declare { name, size }),
        3 => name().prop_map(|name| Get { name }),
        6 => (tensor(), model()).prop_map(|(tensor, model)| Acquire { tensor, model }),
        6 => (tensor(), model()).prop_map(|(tensor, model)| Release { tensor, model }),
        2 => (tensor(), model(), model())
            .prop_map(|(tensor, from, to)| Share { tensor, from, to }),
        2 => tensor().prop_map(|tensor| Pin { tensor }),
        2 => tensor().prop_map(|tensor| Unpin { tensor }),
        2 => tensor().prop_map(|tensor| Free { tensor }),
        5 => (tensor(), name(), 0usize..5, 0usize..5, 1usize..3).prop_map(
            |(tensor, name, offset, size, step)| View { tensor, name, offset, size, step }
        ),
        2 => (tensor(), name()).prop_map(|(tensor, name)| CopyToHost { tensor, name }),
        3 => (tensor(), name()).prop_map(|(tensor, name)| CopyToDevice { tensor, name }),
        3 => (0usize..3).prop_map(|transfer| Complete { transfer }),
        1 => (0usize..3).prop_map(|transfer| Fail { transfer }),
        1 => (0usize..2, model())
            .prop_map(|(namespace, model)| ReleaseModel { namespace, model }),
        1 => Just(Optimize),
        2 => (0u64..80).prop_map(|by| Advance { by }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn the_manager_does_as_the_reference(
        operations in prop::collection::vec(operation(), 1..120),
        budget in 4u64..30,
        entries in 3usize..12,
        max_age in prop::option::of(50u64..200),
    ) {
        let limits = Limits {
            budget_bytes: budget,
            max_entries: entries,
            max_age: max_age.map(Duration::from_millis),
        };
        let mut both = Both::new(limits);
        for operation in operations {
            both.perform(&operation);
            both.compare(&operation);
        }
    }
}

/// A tensor of both, and a transfer of both.
struct Both {
    manager: TensorSharingManager,
    reference: Reference,
    tensors: Vec<(TensorId, usize)>,
    transfers: Vec<(Transfer, reference::Transfer)>,
    fill: u8,
    now: u64,
}

impl Both {
    fn new(limits: Limits) -> Both {
        let reference = Reference::new(&limits);
        let manager = TensorSharingManager::new(limits);
        Both { manager, reference, tensors: vec![], transfers: vec![], fill: 0, now: 0 }
    }

    /// The tensor that was made so many steps ago.
    fn tensor(&self, ago: usize) -> Option<(TensorId, usize)> {
        self.tensors.len().checked_sub(ago + 1).map(|index| self.tensors[index])
    }

    fn made(
        &mut self,
        found: Result<TensorId, &'static str>,
        expected: Result<usize, &'static str>,
    ) {
        match (found, expected) {
            (Ok(id), Ok(number)) => {
                // Fulfilling a declaration gives a tensor that is known already.
                self.tensors.retain(|&(_, other)| other != number);
                self.tensors.push((id, number));
            }
            (found, expected) => assert_eq!(found.map(drop), expected.map(drop)),
        }
    }

    fn bytes(&mut self, size: usize) -> Vec<u8> {
        (0..size)
            .map(|_| {
                self.fill = self.fill.wrapping_add(1);
                self.fill
            })
            .collect()
    }

    fn perform(&mut self, operation: &Operation) {
        match *operation {
            Operation::Register { name, size } => {
                let bytes = self.bytes(size);
                let tensor = Tensor::new(DataType::U8, vec![size], bytes.clone().into()).unwrap();
                let new = NewTensor::from(tensor).made_by(MODELS[0]);
                let found = self.manager.register(key(name), new).map_err(|e| e.kind());
                let shape = Shape { size, host: true };
                let expected = self.reference.register(key(name), shape, bytes, Some(MODELS[0]));
                self.made(found, expected);
            }
            Operation::Declare { name, size } => {
                let found = self.manager.declare(key(name), declaration(size, Place::Host));
                let expected = self.reference.declare(key(name), Shape { size, host: true });
                self.made(found.map_err(|e| e.kind()), expected);
            }
            Operation::Get { name } => {
                let found = self.manager.get(key(name)).map(|t| t.id()).map_err(|e| e.kind());
                let expected = self.reference.get(key(name));
                let expected = expected.map(|number| {
                    self.tensors.iter().find(|&&(_, other)| other == number).unwrap().0
                });
                assert_eq!(found, expected);
            }
            Operation::ReleaseModel { namespace, model } => {
                let (namespace, model) = (NAMESPACES[namespace], MODELS[model]);
                let found = self.manager.release_model_tensors(namespace, model);
                assert_eq!(found, self.reference.release_model(namespace, model));
            }
            Operation::Optimize => {
                let found = self.manager.optimize_memory_usage();
                let freed: Vec<String> = found.freed.into_iter().map(|(_, name, _)| name).collect();
                assert_eq!(freed, self.reference.optimize());
            }
            Operation::Advance { by } => {
                self.now += by;
                let found = self.manager.advance_to(Duration::from_millis(self.now));
                assert_eq!(found, self.reference.advance_to(self.now));
            }
            Operation::Complete { transfer } => {
                if transfer < self.transfers.len() {
                    let (transfer, other) = self.transfers.remove(transfer);
                    let bytes = transfer.arrival.to.is_host().then(|| {
                        let size = transfer.arrival.byte_len as usize;
                        self.bytes(size)
                    });
                    let expected = self.reference.complete(other, bytes.clone());
                    let found = self.manager.complete(transfer, bytes.map(Into::into));
                    self.made(found.map_err(|e| e.kind()), expected);
                }
            }
            Operation::Fail { transfer } => {
                if transfer < self.transfers.len() {
                    let (transfer, other) = self.transfers.remove(transfer);
                    self.manager.fail(transfer);
                    self.reference.fail(other);
                }
            }
            _ => self.perform_on_tensor(operation),
        }
    }

    fn perform_on_tensor(&mut self, operation: &Operation) {
        let (Operation::Acquire { tensor, .. }
        | Operation::Release { tensor, .. }
        | Operation::Share { tensor, .. }
        | Operation::Pin { tensor }
        | Operation::Unpin { tensor }
        | Operation::Free { tensor }
        | Operation::View { tensor, .. }
        | Operation::CopyToHost { tensor, .. }
        | Operation::CopyToDevice { tensor, .. }) = *operation
        else {
            unreachable!("performed already");
        };
        let Some((id, number)) = self.tensor(tensor) else { return };
        let (manager, reference) = (&mut self.manager, &mut self.reference);
        match *operation {
            Operation::Acquire { model, .. } => {
                let found = manager.acquire(id, MODELS[model]).map_err(|e| e.kind());
                assert_eq!(found, reference.acquire(number, MODELS[model]));
            }
            Operation::Release { model, .. } => {
                let found = manager.release(id, MODELS[model]);
                assert_eq!(found, reference.release(number, MODELS[model]));
            }
            Operation::Share { from, to, .. } => {
                let found = manager.share(id, MODELS[from], &[MODELS[to]]).map_err(|e| e.kind());
                assert_eq!(found, reference.share(number, MODELS[from], MODELS[to]));
            }
            Operation::Pin { .. } => {
                assert_eq!(manager.pin(id).map_err(|e| e.kind()), reference.pin(number));
            }
            Operation::Unpin { .. } => assert_eq!(manager.unpin(id), reference.unpin(number)),
            Operation::Free { .. } => {
                assert_eq!(manager.free(id).map_err(|e| e.kind()), reference.free(number));
            }
            Operation::View { name, offset, size, step, .. } => {
                let spans = [Span::new(offset, size).every(step)];
                let name = key(name).name;
                let found = manager.create_view(id, name, &spans).map_err(|e| e.kind());
                let expected = reference.create_view(number, name, offset, size, step);
                self.made(found, expected);
            }
            Operation::CopyToHost { name, .. } | Operation::CopyToDevice { name, .. } => {
                let host = matches!(operation, Operation::CopyToHost { .. });
                let to = if host { Place::Host } else { device() };
                let found = manager.copy_to(id, key(name), to);
                let expected = reference.copy_to(number, key(name), host);
                match (found, expected) {
                    (Ok(Copied::UnderWay(transfer)), Ok(reference::Copied::UnderWay(other))) => {
                        self.transfers.push((*transfer, other));
                    }
                    (Ok(Copied::Done(id)), Ok(reference::Copied::Done(number))) => {
                        self.made(Ok(id), Ok(number));
                    }
                    (Err(found), Err(expected)) => assert_eq!(found.kind(), expected),
                    (found, expected) => panic!("{found:?} but {expected:?}"),
                }
            }
            _ => unreachable!("performed already"),
        }
    }

    /// Everything that can be looked at.
    fn compare(&self, after: &Operation) {
        assert_eq!(self.manager.stats(), self.reference.stats(), "after {after:?}");
        for &(id, number) in &self.tensors {
            let found = self.manager.tensor(id);
            let Some(expected) = self.reference.look(number) else {
                assert!(found.is_none(), "{found:?} is not gone after {after:?}");
                continue;
            };
            let tensor = found.unwrap_or_else(|| panic!("{number} is gone after {after:?}"));
            assert_eq!(tensor.version(), expected.version, "after {after:?}");
            assert_eq!(tensor.is_current(), expected.current);
            assert_eq!(tensor.is_ready(), self.reference.is_ready(number));
            assert_eq!(tensor.can_be_freed(), self.reference.is_idle(number), "{tensor:?}");
            assert_eq!(tensor.is_pinned(), expected.pinned);
            assert_eq!(tensor.dims(), [expected.shape.size]);
            for model in MODELS {
                assert_eq!(tensor.references(model), self.reference.references(number, model));
            }
            let values = tensor.view().materialise().ok().map(|tensor| tensor.bytes().to_vec());
            assert_eq!(values, self.reference.values(number));
        }
        for namespace in NAMESPACES {
            for model in MODELS {
                let usage = self.manager.model_memory_usage(namespace, model);
                let expected = self.reference.model_usage(namespace, model);
                assert_eq!((usage.tensors, usage.bytes, usage.shared_bytes), expected);
            }
        }
    }
}

fn device() -> Place {
    Place::device("lane", Storage::WebGpu)
}

fn declaration(size: usize, place: Place) -> Declaration {
    Declaration { dtype: DataType::U8, dims: vec![size], place, producer: None, consumers: vec![] }
}
