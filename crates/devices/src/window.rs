//! Windows: the part of a kept tensor that is to be read.

use holdfast_graph::Tensor;

use crate::error::DeviceError;

/// A part of a tensor, counted in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first element.
    pub offset: usize,
    /// How many elements on each axis.
    pub dims: Vec<usize>,
    /// How far apart neighbours on each axis are.
    pub strides: Vec<usize>,
}

impl Window {
    /// That part of a tensor. Packed elements cannot be told apart by bytes, and are refused.
    pub fn of(&self, tensor: &Tensor) -> Result<Tensor, DeviceError> {
        let bits = tensor.dtype().bits().filter(|bits| bits.is_multiple_of(8));
        let width = bits.ok_or_else(|| self.refused(tensor))? as usize / 8;
        let elements = self.elements(tensor).ok_or_else(|| self.refused(tensor))?;
        // What lies side by side on the last axis is copied at once.
        let (outer, run) = match (self.dims.split_last(), self.strides.last()) {
            (Some((&run, outer)), Some(1)) => (outer, run.max(1)),
            _ => (self.dims.as_slice(), 1),
        };
        let mut bytes = Vec::with_capacity(elements * width);
        let mut at = vec![0; outer.len()];
        for _ in 0..elements / run {
            let along: usize = at.iter().zip(&self.strides).map(|(at, stride)| at * stride).sum();
            let start = (self.offset + along) * width;
            bytes.extend_from_slice(&tensor.bytes()[start..start + run * width]);
            for (at, &dim) in at.iter_mut().zip(outer).rev() {
                *at += 1;
                if *at < dim {
                    break;
                }
                *at = 0;
            }
        }
        Tensor::new(tensor.dtype(), self.dims.clone(), bytes.into())
            .map_err(|_| self.refused(tensor))
    }

    /// How many elements it shows; `None` if one of them is not in the tensor.
    fn elements(&self, tensor: &Tensor) -> Option<usize> {
        let elements = self.dims.iter().try_fold(1usize, |all, dim| all.checked_mul(*dim))?;
        if self.dims.len() != self.strides.len() {
            return None;
        }
        if elements == 0 {
            return Some(0);
        }
        let mut last = self.offset;
        for (dim, stride) in self.dims.iter().zip(&self.strides) {
            last = last.checked_add((dim - 1).checked_mul(*stride)?)?;
        }
        (last < tensor.dims().iter().product()).then_some(elements)
    }

    fn refused(&self, tensor: &Tensor) -> DeviceError {
        DeviceError::caller(format!(
            "{self:?} is no part of a tensor of {}{:?} that can be read by itself",
            tensor.dtype(),
            tensor.dims()
        ))
    }
}

#[cfg(test)]
mod tests {
    use holdfast_graph::DataType;

    use super::*;

    fn matrix() -> Tensor {
        Tensor::from_slice(&[3, 4], &(0..12).collect::<Vec<i16>>()).unwrap()
    }

    fn window(offset: usize, dims: &[usize], strides: &[usize]) -> Window {
        Window { offset, dims: dims.to_vec(), strides: strides.to_vec() }
    }

    #[test]
    fn shows_rows_columns_steps_one_element_and_none() {
        for (window, expected) in [
            (window(4, &[2, 4], &[4, 1]), vec![4, 5, 6, 7, 8, 9, 10, 11]),
            (window(1, &[3, 2], &[4, 1]), vec![1, 2, 5, 6, 9, 10]),
            (window(0, &[2, 2], &[8, 2]), vec![0, 2, 8, 10]),
            (window(11, &[], &[]), vec![11]),
            (window(12, &[0, 4], &[4, 1]), vec![]),
        ] {
            let shown = window.of(&matrix()).unwrap();
            assert_eq!(shown.dims(), window.dims);
            assert_eq!(shown.to_vec::<i16>().unwrap(), expected);
        }
    }

    #[test]
    fn what_is_outside_or_packed_is_refused() {
        let outside = [
            window(12, &[], &[]),
            window(4, &[3, 4], &[4, 1]),
            window(0, &[2], &[usize::MAX]),
            window(0, &[usize::MAX, 2], &[1, 1]),
            window(0, &[2], &[]),
        ];
        for window in outside {
            assert!(window.of(&matrix()).is_err(), "{window:?}");
        }
        let packed = Tensor::new(DataType::U4, vec![4], vec![0x10, 0x32].into()).unwrap();
        assert!(window(0, &[2], &[1]).of(&packed).is_err());
    }
}
