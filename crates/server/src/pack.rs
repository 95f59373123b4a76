//! A JSON header and the bytes of tensors in one HTTP body, laid out like a frame of the wire.

use bytes::{BufMut, Bytes, BytesMut};
use holdfast_graph::Tensor;
use holdfast_wire::{BodyWriter, TensorSlice};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Puts a header and a body together.
pub(crate) fn pack(header: &impl Serialize, body: BodyWriter) -> serde_json::Result<Bytes> {
    let json = serde_json::to_vec(header)?;
    let pieces = body.finish();
    let start = (4 + json.len()).next_multiple_of(8);
    let mut packed = BytesMut::with_capacity(start + pieces.iter().map(Bytes::len).sum::<usize>());
    packed.put_u32_le(u32::try_from(json.len()).map_err(serde::ser::Error::custom)?);
    packed.put_slice(&json);
    packed.resize(start, 0);
    for piece in pieces {
        packed.put_slice(&piece);
    }
    Ok(packed.freeze())
}

/// Takes them apart. The error says what does not fit.
pub(crate) fn unpack<H: DeserializeOwned>(packed: &Bytes) -> Result<(H, Bytes), String> {
    let length = packed.first_chunk::<4>().ok_or("it is empty")?;
    let length = u32::from_le_bytes(*length) as usize;
    let header = packed.get(4..).and_then(|rest| rest.get(..length)).ok_or("it is cut short")?;
    let header = serde_json::from_slice(header).map_err(|error| error.to_string())?;
    let start = (4 + length).next_multiple_of(8).min(packed.len());
    Ok((header, packed.slice(start..)))
}

/// Lays a tensor into a body.
pub(crate) fn push(body: &mut BodyWriter, tensor: &Tensor) -> TensorSlice {
    let dims = tensor.dims().iter().map(|&dim| dim as u64).collect();
    body.push(tensor.dtype().name(), dims, tensor.bytes().clone())
}
