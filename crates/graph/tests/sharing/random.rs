//! Random families: planned at whatever prices, run, and equal to the whole bit for bit.

use std::collections::HashSet;

use holdfast_graph::share::{Prices, SharePlan};
use holdfast_graph::{Fingerprints, Model, WeightTable};
use holdfast_testkit::random::mutate::{self, Mutation};
use holdfast_testkit::{Numbers, random};
use proptest::prelude::*;

use crate::check::{plan_at, structures_in_trunks};

fn cases(cases: u32) -> ProptestConfig {
    let failure_persistence = None;
    ProptestConfig { cases, failure_persistence, max_shrink_iters: 0, ..ProptestConfig::default() }
}

fn prices(seed: u64) -> Prices {
    let mut numbers = Numbers::labelled(seed, "prices");
    Prices {
        launch: [0, 10, 100][numbers.below(3)],
        moved_byte: [0, 0, 1, 4][numbers.below(4)],
        weight_byte: [0, 1][numbers.below(2)],
    }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn plans_of_random_families_give_the_bits_of_the_whole(seed: u64) {
        let models = random::family(seed);
        let models: Vec<&Model> = models.iter().collect();
        plan_at(&models, &prices(seed));
        plan_at(&models, &Prices::free());
    }

    #[test]
    fn a_model_and_its_mutant_share_nothing_that_differs(seed: u64) {
        let model = random::graph(seed);
        let mutants: [fn(&Model, u64) -> Option<Mutation>; 3] =
            [mutate::flip_weight_bit, mutate::change_attribute, mutate::rewire_edge];
        for mutant in mutants.into_iter().filter_map(|mutate| mutate(&model, seed)) {
            let plan = plan_at(&[&model, &mutant.model], &Prices::free());
            let own = structures(&model);
            let common: HashSet<_> = structures(&mutant.model).intersection(&own).copied().collect();
            let shared = structures_in_trunks(&plan, 0, &model);
            prop_assert!(shared.iter().all(|structure| common.contains(structure)), "{}", mutant.what);
        }
    }
}

fn structures(model: &Model) -> HashSet<holdfast_graph::Structure> {
    let prints = Fingerprints::new(model, &WeightTable::new(model));
    let values = model.graph().node.iter().flat_map(|node| &node.output);
    values.filter_map(|name| Some(prints.get(name)?.structure)).collect()
}

#[test]
fn most_random_families_share_something() {
    let shares = |seed: &u64| -> bool {
        let models = random::family(*seed);
        let plan: SharePlan = plan_at(&models.iter().collect::<Vec<_>>(), &Prices::free());
        plan.shares()
    };
    let sharing = (0..100).filter(shares).count();
    assert!(sharing > 80, "{sharing} of 100");
}
