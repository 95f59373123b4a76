//! One step of a scenario, done with the Rust implementation.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use holdfast_graph::{DataType, Tensor};
use holdfast_tensors::{
    Copied, Declaration, Departing, Key, NewTensor, Place, SharedTensor, SharingError, Source,
    Span, Storage, TensorId, TensorSharingManager, Transfer,
};
use serde_json::{Value, json};

use crate::values;

pub(crate) type Outcome = Result<Value, SharingError>;

pub(crate) struct Performer {
    manager: TensorSharingManager,
    handles: HashMap<String, TensorId>,
    transfers: HashMap<String, Transfer>,
}

impl Performer {
    pub(crate) fn new(manager: TensorSharingManager) -> Performer {
        Performer { manager, handles: HashMap::new(), transfers: HashMap::new() }
    }

    pub(crate) fn perform(&mut self, step: &Value, place: &str) -> Outcome {
        match text(step, "do") {
            "register" => self.register(step),
            "declare" => self.declare(step),
            "get" => {
                let found = self.manager.get(key(step))?;
                let (id, described) = (found.id(), describe(found));
                self.made(step, id)?;
                Ok(described)
            }
            "look" => {
                let id = self.id(step)?;
                let found = self.manager.tensor(id).ok_or(SharingError::Gone { id })?;
                let described = describe(found);
                self.made(step, id)?;
                Ok(described)
            }
            "acquire" => Ok(json!(self.manager.acquire(self.id(step)?, text(step, "model"))?)),
            "release" => Ok(json!(self.manager.release(self.id(step)?, text(step, "model")))),
            "share" => {
                let to: Vec<&str> = texts(&step["to"]);
                self.manager.share(self.id(step)?, text(step, "from"), &to).map(|()| Value::Null)
            }
            "pin" => Ok(json!(self.manager.pin(self.id(step)?)?)),
            "unpin" => Ok(json!(self.manager.unpin(self.id(step)?))),
            "can_be_freed" => Ok(json!(self.manager.can_be_freed(self.id(step)?))),
            "free" => Ok(json!(self.manager.free(self.id(step)?)?)),
            "create_view" => {
                let spans: Vec<Span> = serde_json::from_value(step["spans"].clone()).unwrap();
                let id = self.manager.create_view(self.id(step)?, text(step, "to_name"), &spans)?;
                self.made(step, id)
            }
            "read" => {
                let tensor = self.looked_at(step)?.to_tensor()?;
                Ok(elements(&tensor))
            }
            "materialise" => {
                let tensor = self.looked_at(step)?.view().materialise()?;
                Ok(elements(&tensor))
            }
            "copy_to" => self.copy_to(step),
            "complete" => {
                let transfer = self.transfers.remove(text(step, "transfer")).expect(place);
                let bytes = (!step["bytes"].is_null()).then(|| hex(&step["bytes"]).into());
                let id = self.manager.complete(transfer, bytes)?;
                self.made(step, id)
            }
            "fail" => {
                let transfer = self.transfers.remove(text(step, "transfer")).expect(place);
                self.manager.fail(transfer);
                Ok(Value::Null)
            }
            "dropped" => {
                let mut by_device: BTreeMap<String, usize> = BTreeMap::new();
                for dropped in self.manager.take_dropped() {
                    *by_device.entry(dropped.device.to_string()).or_default() += 1;
                }
                Ok(json!(by_device))
            }
            "release_model_tensors" => {
                let namespace = step["namespace"].as_str().unwrap_or_default();
                Ok(json!(self.manager.release_model_tensors(namespace, text(step, "model"))))
            }
            "optimize_memory_usage" => {
                let optimized = self.manager.optimize_memory_usage();
                let freed: Vec<&str> =
                    optimized.freed.iter().map(|(_, name, _)| name.as_str()).collect();
                let (before, after) = (optimized.bytes_before, optimized.bytes_after);
                Ok(json!({ "bytes_before": before, "bytes_after": after, "freed": freed }))
            }
            "advance" => {
                let now = Duration::from_millis(step["to_ms"].as_u64().unwrap());
                Ok(json!(self.manager.advance_to(now)))
            }
            "stats" => Ok(serde_json::to_value(self.manager.stats()).unwrap()),
            other => self.look_over(other, step, place),
        }
    }

    fn look_over(&self, what: &str, step: &Value, place: &str) -> Outcome {
        let namespace = step["namespace"].as_str().unwrap_or_default();
        Ok(match what {
            "tensor_memory_usage" => {
                let usage = self.manager.tensor_memory_usage(namespace);
                let row = |tensor: &holdfast_tensors::TensorUsage| json!({ "name": tensor.name, "version": tensor.version, "bytes": tensor.bytes });
                usage.iter().map(row).collect()
            }
            "model_memory_usage" => {
                let usage = self.manager.model_memory_usage(namespace, text(step, "model"));
                json!({
                    "tensors": usage.tensors,
                    "bytes": usage.bytes,
                    "shared_bytes": usage.shared_bytes,
                })
            }
            "analyze_sharing_opportunities" => {
                let found = self.manager.analyze_sharing_opportunities(namespace);
                let by_family: serde_json::Map<String, Value> = found
                    .by_family
                    .iter()
                    .map(|(kind, models)| (kind.name().to_owned(), json!(models)))
                    .collect();
                let same: Vec<&Vec<String>> = found.same_bytes.iter().map(|s| &s.names).collect();
                json!({ "by_family": by_family, "same_bytes": same })
            }
            "recommendations" => {
                let texts = self.manager.recommendations(namespace);
                texts.iter().map(ToString::to_string).collect()
            }
            other => panic!("{place}: there is no operation `{other}`"),
        })
    }

    fn register(&mut self, step: &Value) -> Outcome {
        let source = match step["device"].as_str() {
            Some(device) => Source::Device {
                device: device.to_owned(),
                storage: text(step, "storage").parse().unwrap(),
                name: text(step, "device_tensor").to_owned(),
                dtype: dtype(step),
                dims: dims(step),
            },
            None => {
                let bytes = match step["values"].as_array() {
                    Some(list) => values::to_bytes(dtype(step), list),
                    None => hex(&step["bytes"]),
                };
                let tensor = Tensor::new(dtype(step), dims(step), bytes.into());
                let name = text(step, "name").to_owned();
                Source::Host(tensor.map_err(|source| SharingError::Tensor { name, source })?)
            }
        };
        let new = NewTensor {
            source,
            producer: step["producer"].as_str().map(str::to_owned),
            consumers: texts(&step["consumers"]).into_iter().map(str::to_owned).collect(),
        };
        let id = self.manager.register(key(step), new)?;
        self.made(step, id)
    }

    fn declare(&mut self, step: &Value) -> Outcome {
        let place = place(step["device"].as_str(), step["storage"].as_str());
        let declaration = Declaration {
            dtype: dtype(step),
            dims: dims(step),
            place,
            producer: step["producer"].as_str().map(str::to_owned),
            consumers: texts(&step["consumers"]).into_iter().map(str::to_owned).collect(),
        };
        let id = self.manager.declare(key(step), declaration)?;
        self.made(step, id)
    }

    fn copy_to(&mut self, step: &Value) -> Outcome {
        let to = place(step["to_device"].as_str(), step["to_storage"].as_str());
        let key = Key::new(step["namespace"].as_str().unwrap_or_default(), text(step, "to_name"));
        match self.manager.copy_to(self.id(step)?, key, to)? {
            Copied::Done(id) => self.made(step, id),
            Copied::UnderWay(transfer) => {
                let departure = &transfer.departure;
                let upload = match &departure.content {
                    Departing::Host(bytes) => {
                        let elements = departure.dims.iter().product();
                        json!(values::from_bytes(departure.dtype, elements, bytes))
                    }
                    Departing::Device { .. } => Value::Null,
                };
                let described = json!({
                    "under_way": true,
                    "byte_len": departure.byte_len,
                    "from": departure.from.to_string(),
                    "to": transfer.arrival.to.to_string(),
                    "values": upload,
                });
                self.transfers.insert(text(step, "transfer").to_owned(), *transfer);
                Ok(described)
            }
        }
    }

    fn made(&mut self, step: &Value, id: TensorId) -> Outcome {
        if let Some(handle) = step["as"].as_str() {
            self.handles.insert(handle.to_owned(), id);
        }
        Ok(json!({ "version": self.manager.tensor(id).unwrap().version() }))
    }

    fn id(&self, step: &Value) -> Result<TensorId, SharingError> {
        if let Some(handle) = step["handle"].as_str() {
            return Ok(self.handles[handle]);
        }
        let key = key(step);
        let found = self.manager.find(key).map(|tensor| tensor.id());
        found.ok_or_else(|| SharingError::NotFound { name: key.name.to_owned() })
    }

    fn looked_at(&self, step: &Value) -> Result<SharedTensor<'_>, SharingError> {
        let id = self.id(step)?;
        self.manager.tensor(id).ok_or(SharingError::Gone { id })
    }
}

/// What an error says beyond its kind.
pub(crate) fn error_details(error: &SharingError) -> Value {
    let names = |holders: &[holdfast_tensors::Holder]| -> Vec<String> {
        holders.iter().map(ToString::to_string).collect()
    };
    match error {
        SharingError::OverBudget(over) => json!({
            "kind": error.kind(),
            "needed_bytes": over.needed_bytes,
            "held_bytes": over.held_bytes,
            "other_bytes": over.other_bytes,
            "could_be_freed": over.could_be_freed.iter().map(|tensor| json!({
                "name": tensor.name,
                "bytes": tensor.bytes,
                "held_by": names(&tensor.held_by),
            })).collect::<Vec<_>>(),
        }),
        SharingError::Held { held_by, .. } => {
            json!({ "kind": error.kind(), "held_by": names(held_by) })
        }
        _ => json!({ "kind": error.kind() }),
    }
}

fn describe(tensor: SharedTensor<'_>) -> Value {
    let values = tensor.view().materialise().ok().map(|tensor| elements(&tensor));
    json!({
        "version": tensor.version(),
        "dtype": tensor.dtype().name(),
        "dims": tensor.dims(),
        "byte_len": tensor.byte_len(),
        "storage": tensor.storage().name(),
        "place": tensor.place().to_string(),
        "ready": tensor.is_ready(),
        "current": tensor.is_current(),
        "is_view": tensor.is_view(),
        "parent": tensor.parent().name(),
        "contiguous": tensor.view().is_contiguous(),
        "pinned": tensor.is_pinned(),
        "references": tensor.all_references(),
        "producer": tensor.producer(),
        "consumers": tensor.consumers().collect::<Vec<_>>(),
        "can_be_freed": tensor.can_be_freed(),
        "values": values,
    })
}

fn elements(tensor: &Tensor) -> Value {
    json!(values::from_bytes(tensor.dtype(), tensor.elements(), tensor.bytes()))
}

fn key(step: &Value) -> Key<'_> {
    Key::new(step["namespace"].as_str().unwrap_or_default(), text(step, "name"))
}

fn text<'a>(step: &'a Value, field: &str) -> &'a str {
    step[field].as_str().unwrap_or_else(|| panic!("{step} has no text `{field}`"))
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().map_or(Vec::new(), |list| list.iter().map(|v| v.as_str().unwrap()).collect())
}

fn dtype(step: &Value) -> DataType {
    DataType::from_name(text(step, "dtype")).unwrap()
}

fn dims(step: &Value) -> Vec<usize> {
    serde_json::from_value(step["dims"].clone()).unwrap()
}

fn place(device: Option<&str>, storage: Option<&str>) -> Place {
    match device {
        Some(device) => Place::device(device, storage.unwrap().parse::<Storage>().unwrap()),
        None => Place::Host,
    }
}

fn hex(text: &Value) -> Vec<u8> {
    let words = text.as_str().unwrap().split_whitespace();
    words.map(|word| u8::from_str_radix(word, 16).unwrap()).collect()
}
