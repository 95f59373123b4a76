//! Windows: which part of a tensor a view shows.

use bytes::Bytes;
use holdfast_graph::DataType;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::gather;

/// Sizes or positions by axis. Few tensors have more axes than fit without an allocation.
pub(crate) type Dims = SmallVec<[usize; 4]>;

/// The part of one axis that a view shows: `size` elements from `offset` on, every `step`-th.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The first element.
    pub offset: usize,
    /// How many elements.
    pub size: usize,
    /// From one element to the next; 1 for neighbours.
    #[serde(default = "one")]
    pub step: usize,
}

fn one() -> usize {
    1
}

impl Span {
    /// `size` neighbours from `offset` on.
    pub fn new(offset: usize, size: usize) -> Span {
        Span { offset, size, step: 1 }
    }

    /// The same, but every `step`-th element.
    pub fn every(self, step: usize) -> Span {
        Span { step, ..self }
    }
}

/// Why a view cannot be as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum WindowError {
    #[error("the window has {found} axes, the tensor has {expected}: give one span for each axis")]
    WrongRank { expected: usize, found: usize },
    #[error(
        "on axis {axis}, {size} elements from {offset} in steps of {step} do not fit into {dim}"
    )]
    OutOfBounds { axis: usize, offset: usize, size: usize, step: usize, dim: usize },
    #[error("on axis {axis}, the step is 0: it has to be at least 1")]
    NoStep { axis: usize },
}

/// Where the elements of a window lie in the tensor that it looks into, counted in elements of
/// that tensor. A window of a window is a window again, so layouts never nest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    offset: usize,
    dims: Dims,
    strides: Dims,
}

impl Layout {
    /// All of a tensor, row by row. Its element count is known to fit.
    pub fn whole(dims: &[usize]) -> Layout {
        let mut strides: Dims = SmallVec::from_elem(1, dims.len());
        for axis in (1..dims.len()).rev() {
            strides[axis - 1] = strides[axis].saturating_mul(dims[axis].max(1));
        }
        Layout { offset: 0, dims: dims.into(), strides }
    }

    /// A part of it.
    pub fn window(&self, spans: &[Span]) -> Result<Layout, WindowError> {
        if spans.len() != self.dims.len() {
            return Err(WindowError::WrongRank { expected: self.dims.len(), found: spans.len() });
        }
        let mut part = self.clone();
        for (axis, (span, &dim)) in spans.iter().zip(&self.dims).enumerate() {
            let Span { offset, size, step } = *span;
            if step == 0 {
                return Err(WindowError::NoStep { axis });
            }
            let end = match size {
                0 => Some(offset),
                _ => {
                    (size - 1).checked_mul(step).and_then(|n| n.checked_add(offset)?.checked_add(1))
                }
            };
            if end.is_none_or(|end| end > dim) {
                return Err(WindowError::OutOfBounds { axis, offset, size, step, dim });
            }
            // The offset of an empty window may be just behind the end; nothing is read there.
            part.offset = part.offset.saturating_add(offset.saturating_mul(self.strides[axis]));
            part.dims[axis] = size;
            // With one element or none, there is no way from one to the next.
            part.strides[axis] = self.strides[axis].saturating_mul(step);
        }
        Ok(part)
    }

    /// The bytes of what the window shows, of a tensor of this type: without a copy where they lie
    /// one after the other.
    pub fn read(&self, dtype: DataType, bytes: &Bytes) -> Bytes {
        let bits = dtype.bits().unwrap_or(8) as usize;
        gather::slice(self, bits, bytes).unwrap_or_else(|| gather::copy(self, bits, bytes).into())
    }

    /// The first element.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The sizes of the window.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// How far apart neighbours are on each axis.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// How many elements the window shows.
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// Whether the elements lie one after the other without gaps.
    pub fn is_contiguous(&self) -> bool {
        self.elements() == 0 || self.contiguous_from() == 0
    }

    /// The first axis from which on the elements lie without gaps: a run of them can be copied
    /// at once. The number of axes if not even the last is without gaps.
    pub(crate) fn contiguous_from(&self) -> usize {
        let mut run = 1;
        for axis in (0..self.dims.len()).rev() {
            if self.dims[axis] != 1 && self.strides[axis] != run {
                return axis + 1;
            }
            run *= self.dims[axis];
        }
        0
    }

    /// The positions at which runs of elements start, and the length of each run.
    pub(crate) fn runs(&self) -> (Runs<'_>, usize) {
        let from = self.contiguous_from();
        let length = self.dims[from..].iter().product();
        let start = (self.elements() > 0).then_some(self.offset);
        let counters = SmallVec::from_elem(0, from);
        (Runs { layout: self, counters, next: start }, length)
    }
}

/// Walks over the starts of runs, row by row.
pub(crate) struct Runs<'a> {
    layout: &'a Layout,
    counters: Dims,
    next: Option<usize>,
}

impl Iterator for Runs<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let current = self.next?;
        let mut position = current;
        for axis in (0..self.counters.len()).rev() {
            let stride = self.layout.strides[axis];
            self.counters[axis] += 1;
            if self.counters[axis] < self.layout.dims[axis] {
                self.next = Some(position + stride);
                return Some(current);
            }
            position -= (self.layout.dims[axis] - 1) * stride;
            self.counters[axis] = 0;
        }
        self.next = None;
        Some(current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(layout: &Layout) -> Vec<usize> {
        let (runs, length) = layout.runs();
        runs.flat_map(|start| start..start + length).collect()
    }

    fn check(dims: &[usize], spans: &[Span], contiguous: bool, expected: &[usize]) {
        let layout = Layout::whole(dims).window(spans).unwrap();
        assert_eq!(layout.is_contiguous(), contiguous);
        assert_eq!(positions(&layout), expected);
    }

    #[test]
    fn rows_are_contiguous_and_columns_are_not() {
        check(&[3, 4], &[Span::new(1, 2), Span::new(0, 4)], true, &[4, 5, 6, 7, 8, 9, 10, 11]);
        check(&[3, 4], &[Span::new(0, 3), Span::new(1, 2)], false, &[1, 2, 5, 6, 9, 10]);
        check(&[3, 4], &[Span::new(2, 1), Span::new(1, 2)], true, &[9, 10]);
    }

    #[test]
    fn steps_leave_elements_out() {
        check(&[7], &[Span::new(0, 4).every(2)], false, &[0, 2, 4, 6]);
        check(&[4, 2], &[Span::new(1, 2).every(2), Span::new(0, 2)], false, &[2, 3, 6, 7]);
        check(&[7], &[Span::new(3, 1).every(100)], true, &[3]);
    }

    #[test]
    fn a_window_of_a_window_counts_from_the_tensor() {
        let outer = Layout::whole(&[4, 6]).window(&[Span::new(1, 3), Span::new(0, 3).every(2)]);
        let inner = outer.unwrap().window(&[Span::new(1, 2), Span::new(1, 2)]).unwrap();
        assert_eq!(positions(&inner), [14, 16, 20, 22]);
    }

    #[test]
    fn empty_windows_and_scalars() {
        check(&[3], &[Span::new(3, 0)], true, &[]);
        check(&[3, 2], &[Span::new(0, 3), Span::new(0, 0)], true, &[]);
        check(&[], &[], true, &[0]);
        assert_eq!(Layout::whole(&[0, 5]).elements(), 0);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let whole = Layout::whole(&[3, 4]);
        let refused = |spans: &[Span]| whole.window(spans).unwrap_err();
        assert_eq!(refused(&[Span::new(0, 3)]), WindowError::WrongRank { expected: 2, found: 1 });
        let full = Span::new(0, 3);
        for span in [
            Span::new(4, 1),
            Span::new(0, 5),
            Span::new(5, 0),
            Span::new(usize::MAX, 2),
            Span::new(0, 3).every(2),
            Span::new(0, usize::MAX).every(usize::MAX),
        ] {
            let error = refused(&[full, span]);
            assert!(matches!(error, WindowError::OutOfBounds { axis: 1, dim: 4, .. }), "{error}");
        }
        assert_eq!(refused(&[full, full.every(0)]), WindowError::NoStep { axis: 1 });
    }
}
