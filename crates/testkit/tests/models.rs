//! What holds for every architecture and family, short of running them.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use holdfast_graph::weights::weights;
use holdfast_graph::{Dim, Model};
use holdfast_testkit::synth::{Kind, Options, synth};
use holdfast_testkit::{
    Architecture, LayerNorm, Member, NEWEST_OPSET, OLDEST_OPSET, Recipe, Size, Style, bert,
    families, llama, llama_with_past,
};
use prost::Message;

fn file(model: &Model) -> Vec<u8> {
    model.proto().encode_to_vec()
}

fn files(members: &[Member]) -> Vec<(&str, Vec<u8>)> {
    members.iter().map(|member| (member.stem.as_str(), file(&member.model))).collect()
}

/// Initializers by name; the bytes are shared, not copied.
fn initializers(model: &Model) -> BTreeMap<String, Bytes> {
    let tensors = model.graph().initializer.iter();
    tensors
        .map(|tensor| (tensor.name.clone(), tensor.raw_data.clone().expect("raw bytes")))
        .collect()
}

fn operators(model: &Model) -> HashSet<&str> {
    model.graph().node.iter().map(|node| node.op_type.as_str()).collect()
}

fn names(values: Vec<holdfast_graph::Value>) -> Vec<String> {
    values.into_iter().map(|value| value.name).collect()
}

#[test]
fn a_seed_always_gives_the_same_files_and_another_seed_others() {
    for kind in Kind::all() {
        let make = |seed| synth(kind, &Options { seed, ..Options::default() }).unwrap();
        let (one, same, other) = (make(1), make(1), make(2));
        assert_eq!(files(&one), files(&same), "{kind}");
        for (one, other) in one.iter().zip(&other) {
            let different = initializers(&other.model);
            for (name, bytes) in initializers(&one.model) {
                assert_ne!(bytes, different[&name], "{kind}: {name}");
            }
        }
    }
}

#[test]
fn a_written_file_reads_back_as_the_same_model() {
    for kind in Kind::all() {
        for member in synth(kind, &Options::default()).unwrap() {
            let read = Model::from_bytes(file(&member.model).into()).unwrap();
            assert_eq!(read, member.model, "{kind}: {}", member.stem);
        }
    }
}

#[test]
fn every_weight_of_a_layer_is_its_own() {
    for architecture in Architecture::ALL {
        for member in architecture.build(&Recipe::tiny(1)).unwrap() {
            let initializers = initializers(&member.model);
            let distinct: HashSet<&Bytes> = initializers.values().collect();
            assert_eq!(distinct.len(), initializers.len(), "{architecture}: {}", member.stem);
        }
    }
}

#[test]
fn files_of_a_kind_have_different_stems() {
    for kind in Kind::all() {
        let members = synth(kind, &Options::default()).unwrap();
        let stems: HashSet<&str> = members.iter().map(|member| member.stem.as_str()).collect();
        assert_eq!(stems.len(), members.len(), "{kind}");
    }
}

#[test]
fn inputs_and_outputs_have_the_names_of_real_exports() {
    let check = |kind: Kind, index: usize, inputs: &[&str], outputs: &[&str]| {
        let members = synth(kind, &Options::default()).unwrap();
        assert_eq!(names(members[index].model.inputs()), inputs, "{kind}");
        assert_eq!(names(members[index].model.outputs()), outputs, "{kind}");
    };
    let kind = |name: &str| name.parse::<Kind>().unwrap();
    let (ids, mask, types) = ("input_ids", "attention_mask", "token_type_ids");
    check(kind("bert"), 0, &[ids, mask, types], &["last_hidden_state"]);
    check(kind("distilbert"), 0, &[ids, mask], &["last_hidden_state"]);
    check(kind("t5-encoder"), 0, &[ids, mask], &["last_hidden_state"]);
    check(kind("vit"), 0, &["pixel_values"], &["last_hidden_state"]);
    check(kind("whisper-encoder"), 0, &["input_features"], &["last_hidden_state"]);
    let logits = ["logits_per_image", "logits_per_text", "text_embeds", "image_embeds"];
    check(kind("clip"), 0, &[ids, mask, "pixel_values"], &logits);
    check(kind("clip"), 1, &[ids, mask], &["text_embeds", "last_hidden_state"]);
    check(kind("clip"), 2, &["pixel_values"], &["image_embeds", "last_hidden_state"]);
    let presents =
        ["logits", "present.0.key", "present.0.value", "present.1.key", "present.1.value"];
    check(kind("decoder-twins"), 0, &[ids, mask, "position_ids"], &presents);
    let past = [
        ids,
        mask,
        "position_ids",
        "past_key_values.0.key",
        "past_key_values.0.value",
        "past_key_values.1.key",
        "past_key_values.1.value",
    ];
    check(kind("decoder-twins"), 1, &past, &presents);
    check(kind("llama"), 0, &past, &presents);
    check(kind("heads"), 0, &[ids, mask, types], &["logits"]);
    check(kind("heads"), 2, &[ids, mask, types], &["sentence_embedding"]);
    check(kind("heads"), 3, &[ids, mask, types], &["start_logits", "end_logits"]);
}

#[test]
fn batch_and_sequence_stay_open() {
    let model = bert(&Recipe::tiny(1)).unwrap();
    let named = |name: &str| Dim::Named(name.to_owned());
    assert_eq!(model.inputs()[0].dims, Some(vec![named("batch"), named("sequence")]));
    let output = Some(vec![named("batch"), named("sequence"), Dim::Fixed(64)]);
    assert_eq!(model.outputs()[0].dims, output);
}

#[test]
fn styles_change_the_nodes_but_not_the_weights() {
    let styled = |opset, layer_norm| {
        bert(&Recipe { style: Style { opset, layer_norm }, ..Recipe::tiny(1) }).unwrap()
    };
    let plain = styled(17, LayerNorm::Operator);
    let decomposed = styled(17, LayerNorm::Decomposed);
    assert!(operators(&plain).contains("LayerNormalization"));
    assert!(!operators(&decomposed).contains("LayerNormalization"));
    assert!(operators(&decomposed).contains("ReduceMean"));
    assert_eq!(initializers(&plain), initializers(&decomposed));
    for opset in OLDEST_OPSET..=NEWEST_OPSET {
        let model = styled(opset, LayerNorm::Decomposed);
        assert_eq!(model.opset(""), Some(opset));
        assert_eq!(initializers(&plain), initializers(&model));
    }
}

#[test]
fn heads_share_the_trunk_and_nothing_else() {
    let recipe = Recipe::tiny(1);
    let trunk = initializers(&bert(&recipe).unwrap());
    let members = families::heads(&recipe, 8).unwrap();
    let mut own = HashSet::new();
    for member in &members {
        let mut all = initializers(&member.model);
        for (name, bytes) in &trunk {
            let shared = all.remove(name).unwrap();
            assert_eq!(&shared, bytes, "{}: {name}", member.stem);
            assert_eq!(shared.as_ptr(), bytes.as_ptr(), "one copy in memory");
        }
        assert!(!all.is_empty(), "{} has a head", member.stem);
        for bytes in all.into_values() {
            assert!(own.insert(bytes), "{} has a weight of another head", member.stem);
        }
    }
}

#[test]
fn classifiers_are_heads_of_one_kind() {
    let recipe = Recipe::tiny(1);
    let heads = families::heads(&recipe, 5).unwrap();
    let classifiers = families::classifiers(&recipe, 5).unwrap();
    for (index, (head, classifier)) in heads.iter().zip(&classifiers).enumerate() {
        assert!(classifier.stem.ends_with("sequence-classification"), "{}", classifier.stem);
        assert_eq!(head.model == classifier.model, index % 4 == 0, "{index}");
    }
}

#[test]
fn adapters_share_the_base_and_nothing_else() {
    for architecture in Architecture::ALL {
        let recipe = Recipe::tiny(1);
        let bases = architecture.build(&recipe).unwrap();
        let members = families::adapters(architecture, &recipe, 3, 4).unwrap();
        assert_eq!(members.len(), 3 * bases.len());
        for (index, base) in bases.iter().enumerate() {
            let base = initializers(&base.model);
            let mut own = HashSet::new();
            for member in members.iter().skip(index).step_by(bases.len()) {
                let mut all = initializers(&member.model);
                for (name, bytes) in &base {
                    assert_eq!(all.remove(name).as_ref(), Some(bytes), "{name}");
                }
                assert!(all.keys().all(|name| name.contains(".lora_")), "{all:?}");
                assert!(all.len() >= 2 * 2 * recipe.size.layers, "query and value of each layer");
                assert!(all.into_values().all(|bytes| own.insert(bytes)));
            }
        }
    }
}

#[test]
fn the_rank_of_an_adapter_is_its_size() {
    let recipe = Recipe::tiny(1);
    let elements = |rank| -> usize {
        let member = families::adapters(Architecture::Bert, &recipe, 1, rank).unwrap().remove(0);
        let all = weights(&member.model).into_iter();
        all.filter(|weight| weight.name.contains("lora")).map(|w| w.tensor.elements()).sum()
    };
    assert_eq!(elements(4), 2 * 2 * (64 * 4 + 4 * 64));
    assert_eq!(elements(8), 2 * elements(4));
    let error = families::adapters(Architecture::Bert, &recipe, 1, 0).unwrap_err();
    assert_eq!(error.to_string(), "rank must be at least 1");
}

#[test]
fn decoder_twins_have_the_same_weights_and_different_graphs() {
    let recipe = Recipe::tiny(1);
    let (without, with) = (llama(&recipe).unwrap(), llama_with_past(&recipe).unwrap());
    assert_eq!(initializers(&without), initializers(&with));
    assert_ne!(without.graph().node, with.graph().node);
}

#[test]
fn sizes_are_as_asked() {
    let size = Size { layers: 3, vocabulary: 100, ..Size::new(3, 96) };
    let model = bert(&Recipe::new(size, 1)).unwrap();
    let all = initializers(&model);
    assert_eq!(all["embeddings.word_embeddings.weight"].len(), 4 * 100 * 96);
    assert_eq!(all["encoder.layer.2.intermediate.dense.weight"].len(), 4 * 96 * 384);
    assert!(!all.keys().any(|name| name.contains("layer.3")));
}

#[test]
fn refuses_a_rotary_head_without_halves() {
    let size = Size { hidden: 60, heads: 4, key_value_heads: 4, ..Size::tiny() };
    let error = llama(&Recipe::new(size, 1)).unwrap_err().to_string();
    assert_eq!(
        error,
        "a head is 15 wide (hidden / heads), but rotary positions need an even width"
    );
}
