//! Families of real architectures: too large to evaluate here, so by structure.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use bytes::Bytes;
use holdfast_graph::infer::Bindings;
use holdfast_graph::proto::ModelProto;
use holdfast_graph::share::{Prices, SegmentKind, SharePlan};
use holdfast_graph::{Digest, Fingerprints, Message, Model, WeightTable, blob_digest};
use holdfast_testkit::random::{mutate, transform};
use holdfast_testkit::{Architecture, Recipe, bert, families};

use crate::check::{plan, plan_at, plan_with, summary};

fn heads(count: usize) -> Vec<Model> {
    let members = families::heads(&Recipe::tiny(1), count).unwrap();
    members.into_iter().map(|member| member.model).collect()
}

fn refs(models: &[Model]) -> Vec<&Model> {
    models.iter().collect()
}

/// The users and nodes of each trunk.
fn trunks(plan: &SharePlan) -> Vec<(Vec<usize>, usize)> {
    let node_count = |model: &Model| model.graph().node.len();
    plan.trunks().map(|trunk| (trunk.users.clone(), node_count(&trunk.model))).collect()
}

#[test]
fn heads_on_one_bert_share_all_of_it() {
    let models = heads(4);
    for prices in [Prices::free(), Prices::default()] {
        let plan = plan_at(&refs(&models), &prices);
        let [(users, nodes)] = &trunks(&plan)[..] else { panic!("{:?}", summary(&plan)) };
        assert_eq!(users, &[0, 1, 2, 3]);
        let whole = bert(&Recipe::tiny(1)).unwrap().graph().node.len();
        assert!(*nodes + 20 >= whole, "{nodes} of {whole}");
        let (shared, apart) = plan.weight_bytes();
        assert!(shared * 100 < apart * 35, "{shared} of {apart}");
        let (shared, apart) = plan.flops();
        assert!(shared * 100 < apart * 35, "{shared} of {apart}");
    }
}

#[test]
fn heads_in_disguise_share_just_as_much() {
    let plain = heads(3);
    let expected = trunks(&plan_at(&refs(&plain), &Prices::default()))[0].clone();
    for seed in 0..5 {
        let disguised: Vec<Model> =
            plain.iter().map(|model| transform::disguise(model, seed).0).collect();
        let mixed = [&plain[0], &disguised[1], &disguised[2]];
        let found = trunks(&plan_at(&mixed, &Prices::default()));
        assert_eq!(found.len(), 1, "{seed}");
        assert_eq!(found[0].0, expected.0);
        // A trunk that is cut from a disguised model may have `Constant` nodes.
        assert!(found[0].1 >= expected.1);
    }
}

#[test]
fn a_bit_in_the_first_layer_leaves_nearly_nothing_to_share() {
    let models = heads(2);
    let before = plan_at(&refs(&models), &Prices::default());
    let flops = |plan: &SharePlan| plan.trunks().map(|trunk| trunk.cost.flops).sum::<u64>();
    let mut least = u64::MAX;
    for seed in 0..20 {
        let changed = mutate::flip_weight_bit(&models[1], seed).unwrap();
        let after = plan_at(&[&models[0], &changed.model], &Prices::default());
        assert!(flops(&after) <= flops(&before), "{}", changed.what);
        least = least.min(flops(&after));
    }
    assert!(least * 2 < flops(&before), "{least}");
}

#[test]
fn a_changed_attribute_is_never_in_the_trunk() {
    let models = heads(2);
    let nodes = |plan: &SharePlan| trunks(plan).iter().map(|(_, nodes)| nodes).sum::<usize>();
    let before = nodes(&plan(&refs(&models)));
    let mut fewer = 0;
    for seed in 0..10 {
        let changed = mutate::change_attribute(&models[1], seed).unwrap();
        let after = plan(&[&models[0], &changed.model]);
        assert!(nodes(&after) <= before, "{}", changed.what);
        fewer += usize::from(nodes(&after) < before);
    }
    assert!(fewer >= 5, "{fewer}");
}

#[test]
fn adapters_share_what_comes_before_the_first_of_them() {
    let members = families::adapters(Architecture::Bert, &Recipe::tiny(1), 3, 4).unwrap();
    let models: Vec<Model> = members.into_iter().map(|member| member.model).collect();
    let plan = plan(&refs(&models));
    let operators: HashSet<String> = plan
        .trunks()
        .flat_map(|trunk| &trunk.model.graph().node)
        .map(|node| node.op_type.clone())
        .collect();
    assert!(operators.contains("Gather") && operators.contains("LayerNormalization"));
    assert!(plan.segments.iter().any(|segment| segment.kind == SegmentKind::Head));
    a_bit_takes_something_out_of_the_trunks(&models[0], &models[1]);
}

#[test]
fn components_of_one_model_share_what_they_can() {
    let members = families::decoder_twins(&Recipe::tiny(1)).unwrap();
    let models: Vec<Model> = members.into_iter().map(|member| member.model).collect();
    assert!(plan(&refs(&models)).shares());
    a_bit_takes_something_out_of_the_trunks(&models[0], &models[1]);
}

/// The twin of two models that share: a bit of one weight adds nothing to what they have in common,
/// and there are weights that it takes something from.
fn a_bit_takes_something_out_of_the_trunks(model: &Model, other: &Model) {
    let nodes = |plan: &SharePlan| trunks(plan).iter().map(|(_, nodes)| nodes).sum::<usize>();
    let before = nodes(&plan(&[model, other]));
    let mut least = before;
    for seed in 0..10 {
        let changed = mutate::flip_weight_bit(other, seed).unwrap();
        let after = nodes(&plan(&[model, &changed.model]));
        assert!(after <= before, "{}", changed.what);
        least = least.min(after);
    }
    assert!(least < before);
}

#[test]
fn unrelated_models_stay_whole() {
    let models: Vec<Model> = [1, 2]
        .into_iter()
        .flat_map(|seed| Architecture::Bert.build(&Recipe::tiny(seed)).unwrap())
        .chain(Architecture::Vit.build(&Recipe::tiny(3)).unwrap())
        .map(|member| member.model)
        .collect();
    let plan = plan_at(&refs(&models), &Prices::default());
    assert!(!plan.shares());
    assert!(plan.segments.iter().all(|segment| segment.kind == SegmentKind::Whole));
    assert!(plan.segments.iter().zip(&models).all(|(segment, model)| segment.model == *model));
}

#[test]
fn every_architecture_shares_all_with_itself_in_disguise() {
    for architecture in Architecture::ALL {
        for member in architecture.build(&Recipe::tiny(1)).unwrap() {
            let (other, _) = transform::disguise(&member.model, 3);
            let plan = plan(&[&member.model, &other]);
            assert_eq!(plan.segments.len(), 1, "{} {}", architecture.name(), member.stem);
        }
    }
}

/// An export of MiniLM whose weights are not at hand, but their digests are their names.
fn export(name: &str) -> (Model, Fingerprints) {
    export_with(name, |_| ())
}

/// The same with other digests, which stand for other weights.
fn export_with(
    name: &str,
    change: impl FnOnce(&mut HashMap<String, Digest>),
) -> (Model, Fingerprints) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/minilm-exports");
    let bytes = Bytes::from(std::fs::read(folder.join(format!("{name}.onnx"))).unwrap());
    let proto = ModelProto::decode(bytes.clone()).unwrap();
    let mut digests: HashMap<String, Digest> = HashMap::new();
    for tensor in proto.graph.unwrap().initializer {
        let location = tensor.external_data.iter().find(|entry| entry.key == "location");
        let location = location.map(|entry| blob_digest(&entry.value).unwrap());
        digests.extend(location.map(|digest| (tensor.name, digest)));
    }
    change(&mut digests);
    let zeros = Bytes::from(vec![0; 64 << 20]);
    let model = Model::from_bytes_with(bytes, |_| Ok(zeros.clone())).unwrap();
    let weights = WeightTable::hashed_by(&model, |weights| {
        let digest = |name: &String| digests.get(name).copied();
        let hashed = weights.iter().map(|weight| {
            digest(&weight.name).unwrap_or_else(|| Digest::of(weight.tensor.bytes()))
        });
        hashed.collect()
    });
    let prints = Fingerprints::new(&model, &weights);
    (model, prints)
}

#[test]
fn exports_that_differ_in_order_and_type_of_inputs_are_one_segment() {
    let (one, one_prints) = export("torch1-opset14-inputs-reordered");
    let (two, two_prints) = export("torch1-opset14-int32-ids");
    let sizes: Bindings = ["batch", "batch_size", "sequence", "sequence_length", "seq"]
        .into_iter()
        .map(|name| (name, 8))
        .collect();
    let plan =
        plan_with(&[&one, &two], &[one_prints.clone(), two_prints], &sizes, &Prices::default());
    assert_eq!(plan.segments.len(), 1, "{:?}", summary(&plan));
    // The twin: a weight that is another one.
    let (two, two_prints) = export_with("torch1-opset14-int32-ids", |digests| {
        let embedding = digests.iter_mut().find(|(name, _)| name.contains("word_embeddings"));
        *embedding.expect("it has one").1 = Digest::of(b"another one");
    });
    let plan = plan_with(&[&one, &two], &[one_prints, two_prints], &sizes, &Prices::default());
    assert!(plan.segments.len() > 1, "{:?}", summary(&plan));
}

#[test]
fn models_with_bodies_functions_and_strings_share_all_with_themselves() {
    let model = crate::samples::with_everything();
    let (renamed, _) = transform::rename(&model, 1);
    for other in [&model, &renamed, &transform::insert_identities(&model, 2)] {
        let plan = plan(&[&model, other]);
        assert_eq!(plan.segments.len(), 1, "{:?}", summary(&plan));
    }
    // The twin: a weight deep inside a body.
    let mut proto = model.proto().clone();
    let changed = crate::samples::matrix([1.0, 2.0, 3.0, 5.0]).to_proto("");
    let body = &mut proto.graph.as_mut().unwrap().node[0].attribute[0];
    let branch = &mut body.g.as_mut().unwrap().node[0].attribute[0];
    branch.g.as_mut().unwrap().node[0].attribute[0].t = Some(Box::new(changed));
    let other = Model::from_proto(proto).unwrap();
    assert!(!plan(&[&model, &other]).shares());
}
