//! Every architecture and family, from a file to the engine's outputs.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use std::collections::{BTreeMap, HashMap};

use common::inputs::{integers, sample};
use common::{Named, Scratch, assert_close, bare, block_on, outputs};
use holdfast_devices::{Device, Input, Loaded, Output, Program, RequestId, Step, TensorId};
use holdfast_graph::{Digest, Model, Tensor, encode, weights};
use holdfast_models::hashed_weights;
use holdfast_testkit::synth::{Family, Kind, Options, synth};
use holdfast_testkit::{
    Architecture, LayerNorm, Member, NEWEST_OPSET, OLDEST_OPSET, Recipe, Size, Style, families,
    llama_with_past,
};
use ort::session::builder::GraphOptimizationLevel;

/// The smallest weight that becomes a blob.
const MIN_BLOB_BYTES: usize = 1024;

#[test]
fn every_model_computes_what_a_plain_session_computes() {
    let styles = [
        Style::default(),
        Style { layer_norm: LayerNorm::Decomposed, ..Style::default() },
        Style { opset: OLDEST_OPSET, layer_norm: LayerNorm::Decomposed },
        Style { opset: NEWEST_OPSET, layer_norm: LayerNorm::Operator },
    ];
    let scratch = Scratch::new();
    for style in styles {
        for kind in Kind::all() {
            let options = Options { seed: 5, style: style.clone(), ..Options::default() };
            for Member { stem, model } in synth(kind, &options).unwrap() {
                compare_with_plain(&scratch, &format!("{kind}: {stem} ({style:?})"), &model);
            }
        }
    }
}

#[test]
fn adapters_run_on_every_architecture() {
    let scratch = Scratch::new();
    for architecture in Architecture::ALL {
        for member in families::adapters(architecture, &Recipe::tiny(6), 1, 4).unwrap() {
            let what = format!("{} on {architecture}", member.stem);
            compare_with_plain(&scratch, &what, &member.model);
        }
    }
}

fn compare_with_plain(scratch: &Scratch, what: &str, model: &Model) {
    let graph = scratch.import("model", model);
    let off = Some(GraphOptimizationLevel::Disable);
    let mut plain = bare::session(&scratch.engine, &encode(model), off);
    block_on(async {
        let loaded = scratch.load(&graph).await;
        for (batch, sequence) in [(1, 5), (3, 8)] {
            let inputs = sample(&model.inputs(), &sizes(batch, sequence, 4), 9);
            let found = scratch.run(&loaded, &inputs).await;
            assert_close(what, &found, &bare::run(&mut plain, &inputs), 1e-4);
        }
        scratch.engine.unload(loaded.id).await.unwrap();
    });
}

fn sizes(batch: usize, sequence: usize, past: usize) -> Vec<(&'static str, usize)> {
    vec![
        ("batch", batch),
        ("text_batch", batch),
        ("image_batch", batch + 1),
        ("sequence", sequence),
        ("past_sequence", past),
        ("total_sequence", past + sequence),
    ]
}

#[test]
fn tokens_one_by_one_on_a_kept_cache_equal_one_longer_prompt() {
    let recipe = Recipe::tiny(3);
    let Size { layers, key_value_heads, vocabulary, .. } = recipe.size;
    let head = recipe.size.head();
    let model = llama_with_past(&recipe).unwrap();
    let scratch = Scratch::new();
    let (prompt, total) = (5, 12);
    for batch in [1, 2] {
        let ids = |row: usize, column: usize| ((row * 31 + column * 17 + 3) % vocabulary) as i64;
        let tokens = |from: usize, to: usize| -> Named {
            let length = to - from;
            let at = |index: usize| (index / length, from + index % length);
            let input_ids = integers(&[batch, length], |index| ids(at(index).0, at(index).1));
            let position_ids = integers(&[batch, length], |index| at(index).1 as i64);
            let attention_mask = integers(&[batch, to], |_| 1);
            [
                ("input_ids", input_ids),
                ("position_ids", position_ids),
                ("attention_mask", attention_mask),
            ]
            .map(|(name, tensor)| (name.to_owned(), tensor))
            .into()
        };
        let caches = |name: &str| -> Vec<String> {
            let layer = |index| ["key", "value"].map(|part| format!("{name}.{index}.{part}"));
            (0..layers).flat_map(layer).collect()
        };
        let graph = scratch.import("llama", &model);
        block_on(async {
            let loaded = scratch.load(&graph).await;
            let engine = &scratch.engine;
            let none = Tensor::from_slice::<f32>(&[batch, key_value_heads, 0, head], &[]).unwrap();
            for name in caches("cache") {
                engine.put(TensorId(name), none.clone()).await.unwrap();
            }
            let step = |from: usize, to: usize| {
                let inline = tokens(from, to).into_iter().map(|(n, t)| (n, Input::Inline(t)));
                let past = caches("past_key_values").into_iter();
                let kept = past.zip(caches("cache")).map(|(n, id)| (n, Input::Kept(TensorId(id))));
                let present = caches("present").into_iter();
                let keep = present.zip(caches("cache"));
                let keep = keep.map(|(name, id)| (name, Output::Keep(TensorId(id))));
                let logits = ("logits".to_owned(), Output::Return);
                let inputs = inline.chain(kept).collect();
                let outputs = keep.chain([logits]).collect();
                let steps = vec![Step { segment: loaded.id, inputs, outputs }];
                Program { request: RequestId(scratch.request()), deadline: None, steps }
            };
            let mut rows = vec![outputs(engine.run(step(0, prompt)).await.unwrap())];
            for position in prompt..total {
                rows.push(outputs(engine.run(step(position, position + 1)).await.unwrap()));
                let key = engine.get(&TensorId("cache.0.key".to_owned())).await.unwrap();
                assert_eq!(key.dims(), [batch, key_value_heads, position + 1, head]);
            }

            let mut inputs = tokens(0, total);
            inputs.extend(caches("past_key_values").into_iter().map(|name| (name, none.clone())));
            let whole = scratch.run(&loaded, &inputs).await;
            let whole_logits = whole["logits"].to_vec::<f32>().unwrap();
            let mut position = 0;
            for logits in rows.iter().map(|row| &row["logits"]) {
                let length = logits.dims()[1];
                let values = logits.to_vec::<f32>().unwrap();
                for (index, value) in values.iter().enumerate() {
                    let (row, rest) =
                        (index / (length * vocabulary), index % (length * vocabulary));
                    let there = (row * total + position) * vocabulary + rest;
                    let difference = (value - whole_logits[there]).abs();
                    assert!(difference <= 1e-4, "row {row} after {position}: {difference}");
                }
                position += length;
            }
            assert_eq!(position, total);
            for (present, cache) in caches("present").iter().zip(caches("cache")) {
                let kept = engine.get(&TensorId(cache)).await.unwrap();
                let (kept, whole) =
                    ([(present.clone(), kept)], [(present.clone(), whole[present].clone())]);
                assert_close("caches", &kept.into(), &whole.into(), 1e-4);
            }
            engine.unload(loaded.id).await.unwrap();
        });
    }
}

#[test]
fn a_further_head_brings_only_its_own_weights() {
    check_family(Family::Heads);
}

#[test]
fn adapters_on_one_base_count_the_base_once() {
    let loaded = check_family(Family::Adapters);
    // Every adapter has the base in it, and each brings as much as the others of its own.
    let own: Vec<u64> = loaded[1..].iter().map(|loaded| loaded.new_weight_bytes).collect();
    assert!(own.windows(2).all(|pair| pair[0] == pair[1]), "{own:?}");
    assert!(own[0] < loaded[0].weight_bytes / 4, "{own:?}");
}

#[test]
fn a_decoder_that_continues_brings_no_large_weights() {
    check_family(Family::DecoderTwins);
}

/// Loads all members; each brings just the weights that those before it do not have.
fn check_family(family: Family) -> Vec<Loaded> {
    let scratch = Scratch::new();
    let members = synth(Kind::Family(family), &Options::default()).unwrap();
    let mut seen: HashMap<Digest, u64> = HashMap::new();
    let mut all = Vec::new();
    block_on(async {
        for Member { stem, model } in &members {
            let graph = scratch.import(stem, model);
            let loaded = scratch.load(&graph).await;
            let before: u64 = seen.values().sum();
            seen.extend(large_weights(model));
            let new = seen.values().sum::<u64>() - before;
            assert_eq!(loaded.new_weight_bytes, new, "{stem}");
            assert_eq!(loaded.weight_bytes, large_weights(model).values().sum::<u64>(), "{stem}");
            all.push(loaded);
        }
        let stats = scratch.engine.stats().await.unwrap();
        assert_eq!(stats.weight_bytes, seen.values().sum::<u64>());
        assert_eq!(stats.segments, members.len());
    });
    all
}

/// The weights of a model that are blobs in the store, by content.
fn large_weights(model: &Model) -> BTreeMap<Digest, u64> {
    assert!(!weights::weights(model).is_empty());
    let table = hashed_weights(model);
    let bytes = |weight: &holdfast_graph::HashedWeight| weight.tensor.bytes().len();
    let large = table.entries().iter().filter(|weight| bytes(weight) >= MIN_BLOB_BYTES);
    large.map(|weight| (weight.content, bytes(weight) as u64)).collect()
}
