//! What an answer changes in what is known of a lane.
//!
//! It is applied where the answer is heard, before the next message is: whoever asked may wake
//! much later, and by then the engine may have been replaced.

use std::collections::HashSet;

use holdfast_graph::Digest;
use holdfast_wire::{FromLane, ToLane};

use super::convert::{Keeps, read_kept};
use super::state::{LoadedSegment, State};
use crate::program::{KeptTensor, TensorId};
use crate::segment::SegmentId;

/// What a request changes once it is done, and what it needs.
pub(crate) enum Effect {
    /// Nothing.
    None,
    /// A segment is there.
    Loads(SegmentId, Box<LoadedSegment>),
    /// A tensor is there, with so many bytes.
    Puts(TensorId, u64),
    /// Tensors are there, made from others and by segments.
    Runs { segments: Vec<SegmentId>, uses: Vec<TensorId>, keeps: Vec<Keeps> },
    /// A tensor is read.
    Gets(TensorId),
}

impl Effect {
    /// What the answer says is kept. The error says how the lane broke the protocol.
    pub(crate) fn kept(&self, message: &FromLane) -> Result<Vec<KeptTensor>, String> {
        match (self, message) {
            (Effect::Runs { keeps, .. }, FromLane::Outcome { kept, .. }) => read_kept(keeps, kept),
            _ => Ok(Vec::new()),
        }
    }
}

impl State {
    /// The request was done, and left `kept` behind. Gives the bytes of weights that are new on
    /// the lane.
    pub(crate) fn apply(&mut self, effect: Effect, message: &FromLane, kept: &[KeptTensor]) -> u64 {
        match effect {
            Effect::None | Effect::Gets(_) => 0,
            Effect::Loads(id, mut segment) => {
                if let FromLane::Loaded { placement, .. } = message {
                    segment.placement = placement.clone();
                }
                let held: HashSet<Digest> = self
                    .segments
                    .values()
                    .flat_map(|segment| segment.blobs.iter().map(|(digest, _)| *digest))
                    .collect();
                let new = segment.blobs.iter().filter(|(digest, _)| !held.contains(digest));
                let new = new.map(|(_, bytes)| bytes).sum();
                self.allow(segment.blobs.iter().map(|(digest, _)| *digest).collect());
                self.lost_segments.remove(&id);
                if let Some(before) = self.segments.insert(id, *segment) {
                    self.forbid(before.blobs.iter().map(|(digest, _)| *digest).collect());
                }
                new
            }
            Effect::Puts(id, bytes) => {
                self.lost_tensors.remove(&id);
                self.tensors.insert(id, bytes);
                0
            }
            Effect::Runs { .. } => {
                for tensor in kept {
                    self.lost_tensors.remove(&tensor.id);
                    self.tensors.insert(tensor.id.clone(), tensor.byte_len());
                }
                0
            }
        }
    }

    /// The lane says that something which the request needs is gone. It does not say what, so all
    /// of it has to be brought again; what is still there then costs nothing.
    pub(crate) fn forget(&mut self, effect: &Effect) {
        self.forget_segments(effect);
        let tensors = match effect {
            Effect::Runs { uses, .. } => uses.as_slice(),
            Effect::Gets(id) => std::slice::from_ref(id),
            Effect::None | Effect::Loads(..) | Effect::Puts(..) => &[],
        };
        for id in tensors {
            if self.tensors.remove(id).is_some() {
                self.lost_tensors.insert(id.clone());
            }
        }
    }

    /// The segments of a request have to be loaded again.
    pub(crate) fn forget_segments(&mut self, effect: &Effect) {
        if let Effect::Runs { segments, .. } = effect {
            for id in segments {
                if self.let_go(*id) {
                    self.lost_segments.insert(*id);
                }
            }
        }
    }

    /// A request that was given up was done all the same. Asks the lane to undo it, unless
    /// somebody else wants the same by now.
    pub(crate) fn undo(&mut self, effect: Effect) {
        let wanted = |state: &State, wanted: &dyn Fn(&Effect) -> bool| {
            state.pending.values().any(|pending| wanted(&pending.effect))
        };
        match effect {
            Effect::None | Effect::Gets(_) => {}
            Effect::Loads(id, _) => {
                let loads =
                    |effect: &Effect| matches!(effect, Effect::Loads(other, _) if *other == id);
                if !self.segments.contains_key(&id) && !wanted(self, &loads) {
                    let segment = id.0.to_string();
                    self.tell(|request| ToLane::Unload { request, segment });
                }
            }
            Effect::Puts(id, _) => self.undo_keep(id),
            Effect::Runs { keeps, .. } => keeps.into_iter().for_each(|k| self.undo_keep(k.id)),
        }
    }

    /// Nobody knows of these tensors any more.
    pub(crate) fn disown(&mut self, tensors: Vec<TensorId>) {
        for id in tensors {
            if self.tensors.remove(&id).is_some() {
                self.undo_keep(id);
            }
        }
    }

    fn undo_keep(&mut self, id: TensorId) {
        let keeps = |effect: &Effect| match effect {
            Effect::Puts(other, _) => *other == id,
            Effect::Runs { keeps, .. } => keeps.iter().any(|kept| kept.id == id),
            _ => false,
        };
        let wanted = self.pending.values().any(|pending| keeps(&pending.effect));
        if !self.tensors.contains_key(&id) && !wanted {
            self.tell(|request| ToLane::Drop { request, tensor: id.0 });
        }
    }

    /// Asks for something whose answer does not matter.
    fn tell(&mut self, message: impl FnOnce(u64) -> ToLane) {
        let request = self.next_request;
        self.next_request += 1;
        // A name always fits.
        let _ = self.outbox.push_request(request, &message(request), &[]);
    }
}
