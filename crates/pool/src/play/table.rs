//! The models in play on one stage, and the plan that they run by. It runs nothing, and the time
//! is passed in.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use holdfast_devices::SegmentId;
use holdfast_graph::Digest;
use tokio::time::Instant;

use super::Failed;
use super::plan::{AllAnalysed, Analysed, Planned};
use crate::batch::Inputs;
use crate::route::Prepared;
use crate::scheduler::member::KindId;

/// Models that may be in play. One more takes the place of one that nobody has asked for lately, or
/// since somebody began to bring models together; where there is none, it runs on its own. (If it
/// always took a place, seventeen models that take turns would be planned for all the time, and
/// never run by a plan.)
pub(super) const MOST: usize = 16;

/// How long a model that nobody asks for keeps its place from others.
pub(super) const SETTLED: Duration = Duration::from_secs(60);

/// How long a model stays in play that nobody asks for.
pub(super) const IDLE: Duration = Duration::from_secs(600);

/// How long nothing is tried again after it could not be found out: twice as long each time, because
/// all models are loaded anew for it.
pub(super) const PAUSE: Duration = Duration::from_secs(60);

/// At the longest.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(1800);

/// The models in play on one stage.
#[derive(Default)]
pub(super) struct Play {
    models: HashMap<Digest, InPlay>,
    /// The models that the plan is for.
    planned_for: BTreeSet<Digest>,
    /// How they run together; `None` if they have nothing in common that is worth it.
    plan: Option<Arc<Planned>>,
    /// The kinds of devices of which is known whether the plan holds there.
    tried: HashSet<KindId>,
    pub(super) is_planning: bool,
    /// How often planning has come to an end, whatever came of it.
    pub(super) rounds: u64,
    failed_at: Option<Instant>,
    /// How often in a row it could not be found out.
    failures: u32,
}

/// A model in play.
#[derive(Clone)]
pub(super) struct InPlay {
    pub(super) whole: Arc<Prepared>,
    /// What it was asked with, to try a plan with.
    pub(super) sample: Arc<Inputs>,
    pub(super) used: Instant,
    pub(super) analysed: Option<Arc<Analysed>>,
}

/// What came of planning.
pub(super) struct Found {
    pub(super) plan: Option<Arc<Planned>>,
    /// The kinds of devices of which is known by now whether the plan holds there.
    pub(super) tried: HashSet<KindId>,
    /// Why that is not known of others that were there.
    pub(super) failed: Option<Failed>,
}

impl Play {
    /// Somebody asks for a model; `gathering` is since when models are being brought together.
    pub(super) fn ask(
        &mut self,
        whole: &Arc<Prepared>,
        sample: &Inputs,
        gathering: Option<Instant>,
        now: Instant,
    ) {
        if let Some(model) = self.models.get_mut(&whole.original) {
            model.used = now;
            return;
        }
        if self.models.len() >= MOST {
            let oldest = self.models.iter().min_by_key(|(_, model)| model.used);
            let may_go = |(_, model): &(&Digest, &InPlay)| {
                now - model.used >= SETTLED || gathering.is_some_and(|since| model.used < since)
            };
            let Some(oldest) = oldest.filter(may_go).map(|(digest, _)| *digest) else { return };
            self.models.remove(&oldest);
        }
        // With other models there may be another plan, which is not to blame for the last one.
        self.failures = self.failures.min(1);
        let (whole, sample) = (whole.clone(), Arc::new(sample.clone()));
        self.models.insert(whole.original, InPlay { whole, sample, used: now, analysed: None });
    }

    /// How a model runs with the others, if it was proven anywhere that it may.
    pub(super) fn route(&self, model: &Digest) -> Option<&Arc<Prepared>> {
        let route = self.plan.as_ref()?.routes.get(model)?;
        let is_proven = route.shared.as_ref().is_some_and(|shared| shared.proven.anywhere());
        is_proven.then_some(route)
    }

    /// How all models run together, if these are what the plan is for.
    pub(super) fn routes_for<'a>(
        &self,
        mut models: impl Iterator<Item = &'a Digest>,
    ) -> Option<HashMap<Digest, Arc<Prepared>>> {
        let known = models.all(|model| self.planned_for.contains(model));
        known.then(|| self.routes().map(|route| (route.original, route.clone())).collect())
    }

    /// The routes that models may go by.
    pub(super) fn routes(&self) -> impl Iterator<Item = &Arc<Prepared>> {
        self.plan.iter().flat_map(|plan| plan.proven())
    }

    pub(super) fn is_used(&self, now: Instant) -> bool {
        self.models.values().any(|model| now - model.used < IDLE)
    }

    /// Whether there is something to find out: a plan for other models than those in play, or
    /// whether it holds on other kinds of devices. Without devices, nothing can be.
    pub(super) fn is_stale(&self, kinds: &[KindId], now: Instant) -> bool {
        let paused = self.failed_at.is_some_and(|at| now - at < self.pause());
        let untried = || kinds.iter().any(|kind| !self.tried.contains(kind));
        !paused
            && !kinds.is_empty()
            && (!self.is_planned(now) || (self.plan.is_some() && untried()))
    }

    /// Whether the plan is for the models in play. One that nobody asks for any more is not, although
    /// it may not have been taken out yet: it must not stay in memory for the others' sake.
    fn is_planned(&self, now: Instant) -> bool {
        let mut asked_for = self.models.iter().filter(|(_, model)| now - model.used < IDLE);
        self.planned_for.len() == asked_for.clone().count()
            && asked_for.all(|(model, _)| self.planned_for.contains(model))
    }

    fn pause(&self) -> Duration {
        PAUSE.saturating_mul(1 << self.failures.saturating_sub(1).min(16)).min(LONGEST_PAUSE)
    }

    /// What is to be planned for: the models, and what is known of them already.
    pub(super) fn begin(&mut self, now: Instant) -> (Vec<(Digest, InPlay)>, Option<Found>) {
        self.models.retain(|_, model| now - model.used < IDLE);
        let models = self.models.iter().map(|(digest, model)| (*digest, model.clone()));
        let mut models: Vec<_> = models.collect();
        models.sort_by_key(|(digest, _)| *digest);
        let (plan, tried) = (self.plan.clone(), self.tried.clone());
        let known = self.is_planned(now).then_some(Found { plan, tried, failed: None });
        (models, known)
    }

    /// Remembers what was found out about models on the way.
    pub(super) fn learn(&mut self, analysed: AllAnalysed) {
        for (digest, analysed) in analysed {
            if let Some(model) = self.models.get_mut(&digest) {
                model.analysed = Some(analysed);
            }
        }
    }

    /// Takes over what came of planning: if nothing, what was proven before goes on. The routes that
    /// have had their day.
    pub(super) fn publish(
        &mut self,
        planned_for: BTreeSet<Digest>,
        found: Result<Found, Failed>,
        now: Instant,
    ) -> Vec<SegmentId> {
        self.rounds += 1;
        self.failed_at = None;
        let (retired, failed) = match found {
            Ok(Found { plan, tried, failed }) => {
                // A plan of which nothing is known must not take the place of one that is proven.
                let is_known = plan.is_none() || !tried.is_empty();
                let retired = match is_known {
                    true => self.install(planned_for, plan, tried),
                    false => Vec::new(),
                };
                (retired, failed)
            }
            Err(failed) => (Vec::new(), Some(failed)),
        };
        if let Some(Failed { why, model }) = failed {
            tracing::warn!("it is not known whether models may run by a plan: {why}");
            match model {
                Some(model) => drop(self.models.remove(&model)),
                None => {
                    self.failed_at = Some(now);
                    self.failures += 1;
                }
            }
        } else {
            self.failures = 0;
        }
        retired
    }

    /// All that the models may have loaded.
    pub(super) fn loaded(&self) -> Vec<SegmentId> {
        let routes = self.plan.iter().flat_map(|plan| plan.routes.values());
        let whole = self.models.values().map(|model| &model.whole);
        routes.chain(whole).map(|route| route.id).collect()
    }

    fn install(
        &mut self,
        planned_for: BTreeSet<Digest>,
        plan: Option<Arc<Planned>>,
        tried: HashSet<KindId>,
    ) -> Vec<SegmentId> {
        let (before, mut plan) = (self.plan.take(), plan);
        // Of two plans, one that is refused does not take the place of one that is proven.
        let is_refused = plan.as_ref().is_some_and(|plan| !plan.is_proven());
        let may_stay = |before: &&Arc<Planned>| {
            before.is_proven() && before.routes.keys().all(|model| planned_for.contains(model))
        };
        if let Some(before) = before.as_ref().filter(may_stay).filter(|_| is_refused) {
            plan = Some(before.clone());
        }
        let routes: Vec<&Arc<Prepared>> = plan.iter().flat_map(|plan| plan.proven()).collect();
        let old = before.iter().flat_map(|plan| plan.routes.values()).map(|route| route.id);
        let whole = routes.iter().filter_map(|route| route.alone()).map(|whole| whole.id);
        let mut retired: Vec<SegmentId> = old.chain(whole).collect();
        retired.retain(|id| !routes.iter().any(|route| route.id == *id));
        (self.planned_for, self.plan, self.tried) = (planned_for, plan, tried);
        retired
    }
}

#[cfg(test)]
mod tests {
    use holdfast_devices::Segment;
    use holdfast_models::StoredGraph;

    use super::*;

    fn model(number: usize) -> Arc<Prepared> {
        let graph = Digest::of(&number.to_le_bytes());
        let segment = Segment::new(StoredGraph { graph, weights: Vec::new() });
        Arc::new(Prepared::whole(graph, segment, &[], &[]))
    }

    const KIND: [KindId; 1] = [KindId(0)];

    /// Plans for what is in play, with nothing in common.
    fn plan(play: &mut Play, now: Instant) {
        let (models, _) = play.begin(now);
        let models = models.into_iter().map(|(digest, _)| digest).collect();
        let found = Found { plan: None, tried: HashSet::new(), failed: None };
        play.publish(models, Ok(found), now);
    }

    #[test]
    fn more_models_than_there_is_room_for_do_not_push_each_other_out() {
        let (mut play, start) = (Play::default(), Instant::now());
        for number in 0..MOST {
            play.ask(&model(number), &Vec::new(), None, start);
        }
        assert!(play.is_stale(&KIND, start));
        plan(&mut play, start);
        for round in 1..10 {
            let now = start + Duration::from_secs(round);
            for number in 0..MOST + 4 {
                play.ask(&model(number), &Vec::new(), None, now);
                assert!(!play.is_stale(&KIND, now), "no plan is needed for one that has no place");
            }
        }
    }

    #[test]
    fn one_more_takes_the_place_of_one_that_nobody_asks_for() {
        let (mut play, start) = (Play::default(), Instant::now());
        for number in 0..MOST {
            play.ask(&model(number), &Vec::new(), None, start);
        }
        plan(&mut play, start);
        for number in 1..MOST {
            play.ask(&model(number), &Vec::new(), None, start + SETTLED / 2);
        }
        play.ask(&model(99), &Vec::new(), None, start + SETTLED);
        assert!(play.is_stale(&KIND, start + SETTLED));
        let (models, _) = play.begin(start + SETTLED);
        let has = |number| models.iter().any(|(digest, _)| *digest == model(number).original);
        assert!(has(99) && !has(0) && models.len() == MOST);
    }

    #[test]
    fn models_that_are_brought_together_take_places_but_not_each_others() {
        let (mut play, start) = (Play::default(), Instant::now());
        for number in 0..MOST {
            play.ask(&model(number), &Vec::new(), None, start);
        }
        let now = start + Duration::from_secs(1);
        for number in 100..100 + MOST + 3 {
            play.ask(&model(number), &Vec::new(), Some(now), now);
        }
        let (models, _) = play.begin(now);
        let has = |number: usize| models.iter().any(|(d, _)| *d == model(number).original);
        assert!((100..100 + MOST).all(has) && models.len() == MOST);
    }

    #[test]
    fn nothing_is_planned_while_no_device_is_there() {
        let (mut play, start) = (Play::default(), Instant::now());
        play.ask(&model(0), &Vec::new(), None, start);
        assert!(!play.is_stale(&[], start));
        assert!(play.is_stale(&KIND, start));
    }

    #[test]
    fn what_failed_is_not_tried_again_at_once() {
        let (mut play, start) = (Play::default(), Instant::now());
        play.ask(&model(0), &Vec::new(), None, start);
        play.publish(BTreeSet::new(), Err(Failed::here("a test says so".to_owned())), start);
        assert!(!play.is_stale(&KIND, start));
        assert!(play.is_stale(&KIND, start + PAUSE));
    }

    #[test]
    fn what_fails_again_and_again_is_tried_ever_more_rarely_until_another_model_comes() {
        let (mut play, start) = (Play::default(), Instant::now());
        play.ask(&model(0), &Vec::new(), None, start);
        let fail = |play: &mut Play, now| {
            play.publish(BTreeSet::new(), Err(Failed::here("a test says so".to_owned())), now);
        };
        (0..2).for_each(|_| fail(&mut play, start));
        assert!(!play.is_stale(&KIND, start + PAUSE));
        assert!(play.is_stale(&KIND, start + 2 * PAUSE));
        (0..40).for_each(|_| fail(&mut play, start));
        // Somebody still asks for it.
        play.ask(&model(0), &Vec::new(), None, start + LONGEST_PAUSE);
        assert!(!play.is_stale(&KIND, start + LONGEST_PAUSE - PAUSE));
        assert!(play.is_stale(&KIND, start + LONGEST_PAUSE));
        play.ask(&model(1), &Vec::new(), None, start);
        assert!(play.is_stale(&KIND, start + PAUSE));
    }

    #[test]
    fn a_model_that_nobody_asks_for_any_more_changes_the_plan_for_the_others() {
        let (mut play, start) = (Play::default(), Instant::now());
        (0..2).for_each(|number| play.ask(&model(number), &Vec::new(), None, start));
        plan(&mut play, start);
        let (before, after) = (start + IDLE - PAUSE, start + IDLE);
        play.ask(&model(0), &Vec::new(), None, before);
        assert!(!play.is_stale(&KIND, before));
        play.ask(&model(0), &Vec::new(), None, after);
        assert!(play.is_stale(&KIND, after));
        plan(&mut play, after);
        assert!(!play.is_stale(&KIND, after), "once");
    }
}
