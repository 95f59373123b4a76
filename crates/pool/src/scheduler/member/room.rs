//! What fits onto a device, and what has to go for it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use holdfast_devices::SegmentId;
use tokio::time::Instant;

use super::{Health, Held, KindId, Loading, Member, SESSION_BYTES};
use crate::route::{Prepared, lifted_bytes};
use crate::scheduler::load::LetGo;

impl Member {
    /// Whether a model fits at all.
    pub(crate) fn may_hold(&self, model: &Prepared) -> bool {
        model.bytes + SESSION_BYTES <= self.options.memory_bytes
    }

    /// Whether it has a model, or will.
    pub(crate) fn has_or_loads(&self, model: &Prepared) -> bool {
        let coming = self.loading.as_ref().and_then(|loading| loading.model.as_ref());
        self.loaded.contains_key(&model.id) || coming.is_some_and(|coming| coming.id == model.id)
    }

    /// What has to go for a model to fit, least recently used first; `None` if that is not
    /// possible now, because too much of it is in use or has just been loaded for those who wait.
    pub(super) fn victims(
        &self,
        model: &Prepared,
        waits: impl Fn(&SegmentId) -> bool,
        now: Instant,
    ) -> Option<Vec<SegmentId>> {
        let mut staying: Vec<(&SegmentId, &Held)> = self.loaded.iter().collect();
        staying.sort_by_key(|(_, held)| std::cmp::Reverse(held.used));
        let mut victims = Vec::new();
        let fits = |staying: &[(&SegmentId, &Held)]| {
            let models = staying.iter().map(|(_, held)| held.model.as_ref());
            self.bytes_of(models.chain([model])) <= self.options.memory_bytes
        };
        while !fits(&staying) {
            // A model for which others wait stays until its load was worth it.
            let worth = |held: &Held| now - held.at >= held.loaded.took * 2;
            let may_go =
                |(id, held): &(&SegmentId, &Held)| held.in_use == 0 && (!waits(id) || worth(held));
            let oldest = staying.iter().rposition(may_go)?;
            victims.push(*staying.remove(oldest).0);
        }
        Some(victims)
    }

    /// Whether there would be room if what is in use were not: then nothing more is to be started
    /// here, or the model would never get in.
    pub(crate) fn should_drain_for(
        &self,
        model: &Prepared,
        waits: impl Fn(&SegmentId) -> bool,
        now: Instant,
    ) -> bool {
        let worth =
            |(id, held): (&SegmentId, &Held)| !waits(id) || now - held.at >= held.loaded.took * 2;
        self.loading.is_none()
            && !self.loaded.contains_key(&model.id)
            && self.may_hold(model)
            && self.loaded.iter().all(worth)
    }

    /// Makes room and notes that a load begins. How many models have to go for it, and what that
    /// means for the device.
    pub(crate) fn begin_load(
        &mut self,
        model: &Arc<Prepared>,
        retired: &HashSet<(KindId, SegmentId)>,
        waits: impl Fn(&SegmentId) -> bool,
        now: Instant,
    ) -> (usize, LetGo) {
        let mut victims = self.victims(model, &waits, now).unwrap_or_default();
        let idle = self.idle(retired, &waits);
        victims.extend(idle.into_iter().filter(|id| *id != model.id));
        victims.sort_unstable();
        victims.dedup();
        let expected = self.expected_load(model);
        self.loading = Some(Loading { model: Some(model.clone()), since: now, expected });
        (victims.len(), self.let_go(&victims, Some(model)))
    }

    /// Lets go of models that have had their day, if it can be done now.
    pub(crate) fn begin_tidying(
        &mut self,
        retired: &HashSet<(KindId, SegmentId)>,
        waits: impl Fn(&SegmentId) -> bool,
        now: Instant,
    ) -> Option<(usize, LetGo)> {
        if retired.is_empty() || self.loading.is_some() || self.health != Health::Ready {
            return None;
        }
        let idle = self.idle(retired, &waits);
        if idle.is_empty() {
            return None;
        }
        self.loading = Some(Loading { model: None, since: now, expected: Duration::ZERO });
        Some((idle.len(), self.let_go(&idle, None)))
    }

    /// Those of these models that nobody uses or waits for.
    fn idle(
        &self,
        retired: &HashSet<(KindId, SegmentId)>,
        waits: impl Fn(&SegmentId) -> bool,
    ) -> Vec<SegmentId> {
        let is_retired = |id: &SegmentId| retired.contains(&(self.kind_id, *id));
        let loaded = self.loaded.iter();
        let loaded = loaded.filter(|(id, held)| is_retired(id) && held.in_use == 0 && !waits(id));
        loaded.map(|(id, _)| *id).collect()
    }

    /// Forgets models. What has to go with them: what no other model needs, nor the one to come.
    fn let_go(&mut self, models: &[SegmentId], coming: Option<&Arc<Prepared>>) -> LetGo {
        let gone: Vec<Held> = models.iter().filter_map(|id| self.loaded.remove(id)).collect();
        let staying = self.loaded.values().map(|held| &held.model).chain(coming);
        let needed: HashSet<SegmentId> =
            staying.flat_map(|model| model.segments.iter().map(|(id, _)| *id)).collect();
        let of_gone = gone.iter().flat_map(|held| held.model.segments.iter().map(|(id, _)| *id));
        let mut segments: Vec<SegmentId> = of_gone.filter(|id| !needed.contains(id)).collect();
        segments.sort_unstable();
        segments.dedup();
        segments.iter().for_each(|segment| self.cache.forget(segment));
        LetGo { tensors: self.cache.take_dropped(), segments }
    }

    /// Bytes of all that is loaded.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes_of(self.loaded.values().map(|held| held.model.as_ref()))
    }

    /// Bytes of the weights of all that is loaded.
    pub(crate) fn weight_bytes(&self) -> u64 {
        let models = self.loaded.values().flat_map(|held| &held.model.segments);
        let sessions: HashSet<&SegmentId> = models.map(|(id, _)| id).collect();
        self.bytes().saturating_sub(sessions.len() as u64 * SESSION_BYTES)
    }

    fn bytes_of<'a>(&self, models: impl Iterator<Item = &'a Prepared>) -> u64 {
        let mut segments = HashSet::new();
        let mut weights = HashSet::new();
        let mut lifted = HashSet::new();
        let mut bytes = 0;
        for (id, segment) in models.flat_map(|model| &model.segments) {
            if !segments.insert(id) {
                continue;
            }
            if !self.options.shares_weights {
                weights.clear();
            }
            let new = segment.graph.weights.iter().filter(|weight| weights.insert(weight.content));
            bytes += SESSION_BYTES + new.map(|weight| weight.bytes).sum::<u64>();
            // Those are on the device once in any case.
            let new = lifted_bytes(segment).filter(|(content, _)| lifted.insert(*content));
            bytes += new.map(|(_, bytes)| bytes).sum::<u64>();
        }
        bytes
    }
}
