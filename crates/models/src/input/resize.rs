//! Resizing pictures to the bit as Pillow does, because that is what models were trained on.
//!
//! A resampling library whose results differ by a step here and there would do for the eye, but
//! then nobody could compare Holdfast's outputs with those of the original pipeline. Pillow
//! works along rows first, rounds to 8 bits, then works along columns, with weights of 22 bits.

use super::pixels::Pixels;

/// A resampling filter of Pillow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    Nearest,
    Lanczos,
    Bilinear,
    Bicubic,
    Box,
    Hamming,
}

/// A picture at another size. The caller has checked that the result fits in memory.
pub(super) fn resize(pixels: Pixels, height: u32, width: u32, filter: Filter) -> Pixels {
    let Pixels { height: rows, width: columns, channels, mut bytes } = pixels;
    if columns != width {
        let along = Axis { outer: rows as usize, inner: channels };
        bytes = along.resample(&bytes, columns as usize, &windows(columns, width, filter));
    }
    if rows != height {
        let along = Axis { outer: 1, inner: width as usize * channels };
        bytes = along.resample(&bytes, rows as usize, &windows(rows, height, filter));
    }
    Pixels { height, width, channels, bytes }
}

impl Filter {
    /// The filter with this number in Pillow, which `preprocessor_config.json` uses.
    pub(super) fn from_number(number: u8) -> Option<Filter> {
        use Filter::*;
        [Nearest, Lanczos, Bilinear, Bicubic, Box, Hamming].get(usize::from(number)).copied()
    }

    /// How far the filter reaches to either side, in pixels of the smaller scale.
    fn support(self) -> f64 {
        match self {
            Filter::Nearest | Filter::Box => 0.5,
            Filter::Bilinear | Filter::Hamming => 1.0,
            Filter::Bicubic => 2.0,
            Filter::Lanczos => 3.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        let distance = x.abs();
        match self {
            Filter::Nearest | Filter::Box => f64::from(x > -0.5 && x <= 0.5),
            Filter::Bilinear => (1.0 - distance).max(0.0),
            Filter::Hamming if distance < 1.0 => {
                sinc(distance) * (0.54 + 0.46 * (std::f64::consts::PI * distance).cos())
            }
            Filter::Bicubic if distance < 1.0 => (1.5 * distance - 2.5) * distance * distance + 1.0,
            Filter::Bicubic if distance < 2.0 => {
                ((distance - 5.0) * distance + 8.0) * distance * -0.5 + 2.0
            }
            Filter::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            Filter::Hamming | Filter::Bicubic | Filter::Lanczos => 0.0,
        }
    }
}

fn sinc(x: f64) -> f64 {
    let angle = std::f64::consts::PI * x;
    if angle == 0.0 { 1.0 } else { angle.sin() / angle }
}

/// The pixels that one new pixel is made of: the first of them, and a weight for each.
struct Window {
    first: usize,
    weights: Vec<i32>,
}

/// Weights have this many fractional bits.
const PRECISION: u32 = 32 - 8 - 2;

fn windows(from: u32, to: u32, filter: Filter) -> Vec<Window> {
    let scale = f64::from(from) / f64::from(to);
    let centers = (0..to).map(|index| (f64::from(index) + 0.5) * scale);
    if filter == Filter::Nearest {
        let at = |center: f64| (center as usize).min(from as usize - 1);
        return centers
            .map(|center| Window { first: at(center), weights: vec![1 << PRECISION] })
            .collect();
    }
    // A picture that shrinks is filtered at the scale of the result, one that grows at its own.
    let filter_scale = scale.max(1.0);
    let support = filter.support() * filter_scale;
    centers
        .map(|center| {
            let first = (center - support + 0.5).max(0.0) as usize;
            let end = ((center + support + 0.5) as usize).min(from as usize);
            let weight = |index: usize| filter.weight((index as f64 - center + 0.5) / filter_scale);
            let exact: Vec<f64> = (first..end).map(weight).collect();
            let sum: f64 = exact.iter().sum();
            let fixed = |weight: &f64| (weight / sum * f64::from(1 << PRECISION)).round() as i32;
            Window { first, weights: exact.iter().map(fixed).collect() }
        })
        .collect()
}

/// One axis of a picture: how often its lines repeat, and how many bytes a step along it is.
struct Axis {
    outer: usize,
    inner: usize,
}

impl Axis {
    fn resample(&self, bytes: &[u8], len: usize, windows: &[Window]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.outer * windows.len() * self.inner);
        let mut sums = vec![0i32; self.inner];
        for line in bytes.chunks_exact(len * self.inner).take(self.outer) {
            for window in windows {
                sums.fill(1 << (PRECISION - 1));
                let steps = line[window.first * self.inner..].chunks_exact(self.inner);
                for (step, weight) in steps.zip(&window.weights) {
                    for (sum, byte) in sums.iter_mut().zip(step) {
                        *sum += i32::from(*byte) * weight;
                    }
                }
                out.extend(sums.iter().map(|sum| (sum >> PRECISION).clamp(0, 255) as u8));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use ::image::ImageFormat;

    use super::super::pixels::tests::{encoded, picture};
    use super::*;

    /// Compares every `rows`th row with what Pillow 13.0.0 makes of the same picture.
    fn check_resize(
        filter: Filter,
        channels: usize,
        size: (u32, u32),
        rows: usize,
        expected: &[u8],
    ) {
        let source = encoded(picture(13, 9), ImageFormat::Png);
        let (height, width) = size;
        let pixels = resize(Pixels::decode(&source, channels).unwrap(), height, width, filter);
        let row_len = pixels.width as usize * channels;
        let found = pixels.bytes.chunks(row_len).step_by(rows).flatten();
        assert!(found.eq(expected), "{filter:?}: {:?}", pixels.bytes);
    }

    #[test]
    fn every_filter_resizes_as_pillow_does() {
        let filters: [(Filter, [u8; 36]); 6] = [
            (
                Filter::Nearest,
                [
                    23, 73, 123, 53, 103, 153, 93, 143, 193, 123, 173, 223, 71, 121, 171, 128, 178,
                    228, 111, 161, 211, 168, 218, 12, 119, 169, 219, 203, 253, 47, 222, 16, 66,
                    213, 7, 57,
                ],
            ),
            (
                Filter::Lanczos,
                [
                    24, 74, 121, 55, 104, 167, 95, 146, 183, 120, 181, 157, 73, 123, 186, 137, 189,
                    186, 159, 207, 134, 182, 181, 89, 127, 177, 188, 176, 228, 99, 185, 165, 49,
                    189, 108, 49,
                ],
            ),
            (
                Filter::Bilinear,
                [
                    32, 82, 132, 64, 114, 164, 98, 148, 176, 123, 173, 157, 79, 129, 178, 132, 182,
                    174, 154, 197, 135, 173, 180, 94, 126, 176, 180, 169, 215, 108, 185, 170, 61,
                    186, 119, 53,
                ],
            ),
            (
                Filter::Bicubic,
                [
                    26, 76, 126, 58, 108, 165, 96, 147, 181, 122, 177, 156, 75, 125, 182, 135, 186,
                    181, 157, 203, 135, 179, 180, 91, 126, 176, 186, 173, 223, 103, 186, 167, 53,
                    188, 113, 50,
                ],
            ),
            (
                Filter::Box,
                [
                    23, 73, 123, 58, 108, 158, 93, 143, 193, 123, 173, 138, 71, 121, 171, 138, 188,
                    174, 152, 202, 139, 178, 171, 108, 119, 169, 191, 171, 221, 100, 191, 156, 35,
                    185, 121, 57,
                ],
            ),
            (
                Filter::Hamming,
                [
                    27, 77, 127, 60, 110, 160, 93, 143, 184, 122, 172, 156, 76, 126, 176, 134, 184,
                    183, 152, 199, 139, 174, 179, 98, 124, 174, 188, 170, 219, 104, 187, 164, 50,
                    184, 114, 54,
                ],
            ),
        ];
        for (filter, expected) in filters {
            check_resize(filter, 3, (3, 4), 1, &expected);
        }
    }

    #[test]
    fn enlarging_and_grey_pictures_match_pillow_too() {
        let first_and_last_row = [
            0, 50, 100, 5, 55, 105, 11, 61, 111, 16, 66, 116, 21, 71, 121, 27, 77, 127, 32, 82,
            132, 38, 88, 138, 44, 94, 144, 50, 100, 150, 55, 105, 155, 61, 111, 161, 67, 117, 167,
            72, 122, 172, 78, 128, 178, 83, 133, 183, 103, 153, 203, 125, 175, 244, 151, 201, 110,
            181, 231, 0, 192, 242, 68, 134, 184, 239, 157, 207, 46, 185, 254, 14, 215, 151, 59,
            219, 36, 63, 165, 224, 9, 192, 255, 36, 237, 86, 62, 113, 7, 93, 33, 107, 90, 204, 255,
            37,
        ];
        let bicubic = Filter::Bicubic;
        check_resize(bicubic, 3, (10, 16), 9, &first_and_last_row);
        let grey = [73, 105, 136, 157, 120, 166, 177, 168, 162, 189, 162, 132];
        let bilinear = Filter::Bilinear;
        check_resize(bilinear, 1, (3, 4), 1, &grey);
    }
}
