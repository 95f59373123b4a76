//! A view: a window into a tensor's bytes, where they are.

use bytes::Bytes;
use holdfast_graph::{DataType, Tensor};

use crate::error::SharingError;
use crate::gather;
use crate::slots::TensorId;
use crate::storage::Place;
use crate::tensor::SharedTensor;
use crate::window::Layout;

/// What a view shows: where its elements lie, and the bytes of the tensor that they lie in. On the
/// host, it keeps these bytes for as long as it lives; it never copies them unless it is asked to.
#[derive(Clone, Debug)]
pub struct SharedTensorView {
    id: TensorId,
    parent: TensorId,
    name: String,
    dtype: DataType,
    layout: Layout,
    place: Place,
    ready: bool,
    bytes: Option<Bytes>,
}

impl SharedTensorView {
    pub(crate) fn new(of: SharedTensor<'_>, layout: Layout, bytes: Option<Bytes>) -> Self {
        SharedTensorView {
            id: of.id(),
            parent: of.parent().id(),
            name: of.name().to_owned(),
            dtype: of.dtype(),
            layout,
            place: of.place().clone(),
            ready: of.is_ready(),
            bytes,
        }
    }

    /// What identifies it.
    pub fn id(&self) -> TensorId {
        self.id
    }

    /// The tensor that it looks into. That of a view of a view is the tensor too.
    pub fn parent(&self) -> TensorId {
        self.parent
    }

    /// The element type.
    pub fn dtype(&self) -> DataType {
        self.dtype
    }

    /// The dimensions of the window.
    pub fn dims(&self) -> &[usize] {
        self.layout.dims()
    }

    /// Where its elements lie in the tensor, counted in elements.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether its elements lie one after the other.
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// Its elements where they lie, without a copy. Refused if they do not lie one after the
    /// other, or if packed ones share a byte with neighbours outside the window.
    pub fn tensor(&self) -> Result<Tensor, SharingError> {
        let (bits, bytes) = self.on_host()?;
        let part = gather::slice(&self.layout, bits, bytes)
            .ok_or_else(|| SharingError::NotContiguous { name: self.name.clone() })?;
        self.finished(part)
    }

    /// A copy of its elements, row by row; packed ones are packed anew.
    pub fn materialise(&self) -> Result<Tensor, SharingError> {
        let (bits, bytes) = self.on_host()?;
        self.finished(gather::copy(&self.layout, bits, bytes).into())
    }

    fn on_host(&self) -> Result<(usize, &Bytes), SharingError> {
        let bytes = self.bytes.as_ref().ok_or_else(|| {
            let name = self.name.clone();
            match self.ready {
                true => SharingError::NotOnHost { name, place: self.place.clone() },
                false => SharingError::NotReady { name },
            }
        })?;
        let bits = self.dtype.bits().ok_or(SharingError::NoFixedSize { dtype: self.dtype })?;
        Ok((bits as usize, bytes))
    }

    fn finished(&self, bytes: Bytes) -> Result<Tensor, SharingError> {
        Tensor::new(self.dtype, self.dims().to_vec(), bytes)
            .map_err(|source| SharingError::Tensor { name: self.name.clone(), source })
    }
}
