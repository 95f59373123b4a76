//! Which models are in play, and how they run together.
//!
//! A model comes into play when somebody asks for it, and runs on its own at first. Whenever other
//! models are in play than the last plan was for, a new one is made beside the work: what they
//! have in common is found, cut out, and tried against the models on their own. Only then are
//! requests sent that way. Those that are under way finish as they began, so a change of plan
//! loses nothing.

mod groups;
mod plan;
mod prove;
mod table;
mod weights;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use holdfast_devices::SegmentId;
use holdfast_devices::cpu::Target;
use holdfast_graph::Digest;
use holdfast_graph::share::Prices;
use holdfast_models::Store;
use holdfast_wire::Backend;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::batch::Inputs;
use crate::choice::Choice;
use crate::pool::lock;
use crate::request::Request;
use crate::route::Prepared;
use crate::scheduler::Scheduler;
use crate::scheduler::kind::Kind;
use crate::scheduler::member::KindId;
use plan::Planned;
use table::{Found, InPlay, Play};

/// All models in play. Cheap to clone: clones are the same.
#[derive(Clone)]
pub(crate) struct Plays {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<Store>,
    scheduler: Scheduler,
    means: Means,
    progress: Arc<dyn Fn(&str) + Send + Sync>,
    /// Never held while anything is awaited.
    plays: Mutex<HashMap<Stage, Play>>,
    /// Never held while anything else is locked.
    gatherings: Mutex<Gatherings>,
    /// A plan was made, or given up.
    planned: Notify,
}

/// What decides how models share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Means {
    /// What is worth it.
    pub(crate) prices: Prices,
    /// Bytes of models that a lane may hold.
    pub(crate) lane_bytes: u64,
}

/// Where models can share: what was lowered for one target, at the same sizes where it has any.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stage {
    pub(crate) target: Target,
    pub(crate) dims: BTreeMap<String, usize>,
}

impl Stage {
    /// Where a model that was prepared on its own can share.
    fn of(target: Target, whole: &Prepared) -> Stage {
        let dims = whole.segments.first().map(|(_, segment)| segment.dims.clone());
        Stage { target, dims: dims.unwrap_or_default() }
    }

    fn choice(&self) -> Choice {
        match self.target {
            Target::Cpu => Choice::Cpu,
            Target::Wasm => Choice::Lane(Backend::Wasm),
            Target::WebGpu => Choice::Lane(Backend::Webgpu),
            Target::WebNn => Choice::Lane(Backend::Webnn),
        }
    }
}

impl Plays {
    pub(crate) fn new(
        store: Arc<Store>,
        scheduler: Scheduler,
        means: Means,
        progress: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Plays {
        let (plays, gatherings, planned) = Default::default();
        let shared = Shared { store, scheduler, means, progress, plays, gatherings, planned };
        Plays { shared: Arc::new(shared) }
    }

    /// How a model runs that was asked for: as the plan says, or on its own if there is none yet.
    pub(crate) fn route(
        &self,
        request: &Request,
        target: Target,
        whole: Arc<Prepared>,
    ) -> Arc<Prepared> {
        let stage = Stage::of(target, &whole);
        let (now, gathering) = (Instant::now(), lock(&self.shared.gatherings).since);
        let mut plays = lock(&self.shared.plays);
        // A stage for sizes that were asked for once is not worth remembering.
        plays.retain(|other, play| *other == stage || play.is_planning || play.is_used(now));
        let play = plays.entry(stage.clone()).or_default();
        play.ask(&whole, &request.inputs, gathering, now);
        let route = play.route(&whole.original).cloned();
        self.begin(&stage, play);
        route.unwrap_or(whole)
    }

    /// How models run together, by the graphs that they were imported as: as they do if they are in
    /// play, else as they would. Nothing is run for it.
    pub(crate) async fn preview(
        &self,
        target: Target,
        models: Vec<(Arc<Prepared>, Arc<Inputs>)>,
    ) -> HashMap<Digest, Arc<Prepared>> {
        let mut stages: HashMap<Stage, HashMap<Digest, InPlay>> = HashMap::new();
        for (whole, sample) in models {
            let in_play =
                InPlay { whole: whole.clone(), sample, used: Instant::now(), analysed: None };
            let stage = stages.entry(Stage::of(target, &whole)).or_default();
            stage.entry(whole.original).or_insert(in_play);
        }
        let mut routes = HashMap::new();
        for (stage, models) in stages {
            if let Some(play) = lock(&self.shared.plays).get(&stage)
                && let Some(known) = play.routes_for(models.keys())
            {
                routes.extend(known);
                continue;
            }
            if models.len() < 2 {
                continue;
            }
            let mut models: Vec<(Digest, InPlay)> = models.into_iter().collect();
            models.sort_by_key(|(digest, _)| *digest);
            let shared = self.shared.clone();
            let planned = tokio::task::spawn_blocking(move || {
                plan::plan(&shared.store, &shared.means, &stage, models)
            });
            match planned.await {
                Ok(Ok((Some(planned), _))) => routes.extend(planned.routes),
                Ok(Ok((None, _))) => {}
                Ok(Err(Failed { why, .. })) => tracing::warn!("no plan for the models: {why}"),
                Err(error) => tracing::warn!("no plan for the models: {error}"),
            }
        }
        routes
    }

    /// Begins a plan, if there is need for one.
    fn begin(&self, stage: &Stage, play: &mut Play) {
        let is_gathering = lock(&self.shared.gatherings).since.is_some();
        if !is_gathering
            && !play.is_planning
            && play.is_stale(&self.kinds_of(stage), Instant::now())
        {
            play.is_planning = true;
            let (plays, stage) = (self.clone(), stage.clone());
            tokio::spawn(async move { plays.plan(stage).await });
        }
    }

    /// The kinds of devices that are there for a stage.
    fn kinds_of(&self, stage: &Stage) -> Vec<KindId> {
        let kinds = self.shared.scheduler.kinds_of(stage.choice());
        kinds.into_iter().map(|(id, _)| id).collect()
    }

    /// Lets models come into play together: they are planned for when the guard goes.
    pub(crate) fn gather(&self) -> Gathering<'_> {
        let mut gatherings = lock(&self.shared.gatherings);
        gatherings.count += 1;
        gatherings.since.get_or_insert_with(Instant::now);
        drop(gatherings);
        Gathering { plays: self }
    }

    /// Forgets which models are in play. What they had loaded goes once nobody uses it.
    pub(crate) async fn forget(&self) {
        self.settled().await;
        let mut loaded = Vec::new();
        lock(&self.shared.plays).retain(|_, play| {
            if !play.is_planning {
                loaded.extend(play.loaded());
            }
            play.is_planning
        });
        self.shared.scheduler.retire(loaded);
    }

    /// Waits until all that is in play is planned for, as far as that can be found out. What comes
    /// into play from now on is not waited for: under load, there is always something.
    pub(crate) async fn settled(&self) {
        let planning = {
            let plays = lock(&self.shared.plays);
            let planning = plays.iter().filter(|(_, play)| play.is_planning);
            // The round that is under way may have begun without some of the models; the next has all.
            planning.map(|(stage, play)| (stage.clone(), play.rounds + 2)).collect::<Vec<_>>()
        };
        loop {
            let planned = self.shared.planned.notified();
            let is_planning = {
                let plays = lock(&self.shared.plays);
                planning.iter().any(|(stage, rounds)| {
                    plays.get(stage).is_some_and(|play| play.is_planning && play.rounds < *rounds)
                })
            };
            if !is_planning {
                return;
            }
            planned.await;
        }
    }

    /// Plans until the plan is for what is in play, and is tried on all that is there.
    async fn plan(&self, stage: Stage) {
        let mut planning = Planning { plays: self, stage: &stage, ended: false };
        while !planning.ended {
            let (models, known) = {
                let mut plays = lock(&self.shared.plays);
                plays.entry(stage.clone()).or_default().begin(Instant::now())
            };
            let found = self.find(&stage, &models, known).await;
            let retired = {
                let mut plays = lock(&self.shared.plays);
                let play = plays.entry(stage.clone()).or_default();
                let (planned_for, now) = (models.iter().map(|(digest, _)| *digest), Instant::now());
                let retired = play.publish(planned_for.collect(), found, now);
                // Under the same lock, or whoever asks for a new model in between relies on a
                // round that never comes.
                play.is_planning = play.is_stale(&self.kinds_of(&stage), now);
                planning.ended = !play.is_planning;
                retired
            };
            self.shared.scheduler.retire(retired);
            self.shared.planned.notify_waiters();
        }
    }

    /// What models have in common, tried on all kinds of devices that are there. `known` is what is
    /// known of these models already.
    async fn find(
        &self,
        stage: &Stage,
        models: &[(Digest, InPlay)],
        known: Option<Found>,
    ) -> Result<Found, Failed> {
        let found = match known {
            Some(known) => known,
            None => {
                let plan = self.plan_for(stage, models).await?.map(Arc::new);
                Found { plan, tried: HashSet::new(), failed: None }
            }
        };
        let Some(plan) = found.plan else { return Ok(found) };
        let samples: HashMap<Digest, Arc<Inputs>> =
            models.iter().map(|(digest, model)| (*digest, model.sample.clone())).collect();
        let (mut tried, mut failed) = (found.tried, None);
        for (id, kind) in self.shared.scheduler.kinds_of(stage.choice()) {
            if tried.contains(&id) {
                continue;
            }
            // What cannot be found out about one kind says nothing about another.
            match prove::prove(&self.shared, stage, (id, &kind), &plan, &samples).await {
                Ok(()) => drop(tried.insert(id)),
                Err(error) => failed = Some(error),
            }
            self.let_go(stage, (id, &kind), &plan);
        }
        Ok(Found { plan: Some(plan), tried, failed })
    }

    /// Lets go of what was loaded to try a plan where it turned out to be of no use. The plan that
    /// models run by until then may have some of it too.
    fn let_go(&self, stage: &Stage, (id, kind): (KindId, &Kind), plan: &Planned) {
        let used: HashSet<SegmentId> = {
            let plays = lock(&self.shared.plays);
            let routes = plays.get(stage).into_iter().flat_map(Play::routes);
            routes.map(|route| route.id).collect()
        };
        let useless = plan.routes.values().filter(|route| !route.may_run_on(&kind.name));
        let useless = useless.map(|route| route.id).filter(|id| !used.contains(id));
        self.shared.scheduler.retire_on(id, useless);
    }

    /// What these models have in common, if it is worth anything.
    async fn plan_for(
        &self,
        stage: &Stage,
        models: &[(Digest, InPlay)],
    ) -> Result<Option<Planned>, Failed> {
        if models.len() < 2 {
            return Ok(None);
        }
        (self.shared.progress)("comparing the models");
        let (shared, stage_of, given) = (self.shared.clone(), stage.clone(), models.to_vec());
        let planned = tokio::task::spawn_blocking(move || {
            plan::plan(&shared.store, &shared.means, &stage_of, given)
        });
        let planned = planned.await;
        let (planned, analysed) = planned.map_err(|error| Failed::here(error.to_string()))??;
        if let Some(play) = lock(&self.shared.plays).get_mut(stage) {
            play.learn(analysed);
        }
        Ok(planned)
    }
}

/// How many are bringing models together. While there are any, no plan is begun.
#[derive(Default)]
struct Gatherings {
    count: usize,
    /// Since when there are any.
    since: Option<Instant>,
}

/// While this is there, no plan is begun.
pub(crate) struct Gathering<'a> {
    plays: &'a Plays,
}

impl Drop for Gathering<'_> {
    fn drop(&mut self) {
        let mut gatherings = lock(&self.plays.shared.gatherings);
        gatherings.count -= 1;
        if gatherings.count == 0 {
            gatherings.since = None;
        }
        drop(gatherings);
        for (stage, play) in lock(&self.plays.shared.plays).iter_mut() {
            self.plays.begin(stage, play);
        }
    }
}

/// Why nothing is known of a plan.
#[derive(Debug)]
struct Failed {
    why: String,
    /// The model that it is about, which is not in play until it is asked for again.
    model: Option<Digest>,
}

impl Failed {
    fn here(why: String) -> Failed {
        Failed { why, model: None }
    }

    fn with(model: Digest, why: String) -> Failed {
        Failed { why, model: Some(model) }
    }
}

/// A plan that is being made. However that ends, whoever waits for it goes on.
struct Planning<'a> {
    plays: &'a Plays,
    stage: &'a Stage,
    /// Whether that it has ended is noted already.
    ended: bool,
}

impl Drop for Planning<'_> {
    fn drop(&mut self) {
        if !self.ended
            && let Some(play) = lock(&self.plays.shared.plays).get_mut(self.stage)
        {
            play.is_planning = false;
        }
        self.plays.shared.planned.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
