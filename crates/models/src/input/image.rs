//! Pictures through the steps that the model's `preprocessor_config.json` states.

use holdfast_graph::{DataType, Tensor, Value};

use super::pixels::Pixels;
use super::recipe::Recipe;
use super::tensors::{check_batch, check_input, fixed_size, from_floats, from_ints, not_taken};
use super::{InputError, Prepared, Sidecars, Source};

/// Turns PNG and JPEG pictures into the picture input of one model.
#[derive(Clone, Debug)]
pub struct ImageInput {
    recipe: Recipe,
    input: Value,
    layout: Layout,
    channels: usize,
    /// The input that says which pixels are picture and which padding; some models ask for it.
    mask: Option<Value>,
}

impl ImageInput {
    /// Reads the recipe and finds the model's picture input: `pixel_values`, or else the only
    /// input with four dimensions.
    pub fn new(sidecars: &Sidecars, inputs: &[Value]) -> Result<ImageInput, InputError> {
        let rank = |input: &Value| input.dims.as_ref().map(Vec::len);
        let mut of_rank_4 = inputs.iter().filter(|input| rank(input) == Some(4));
        let input = inputs
            .iter()
            .find(|input| input.name == "pixel_values")
            .or_else(|| of_rank_4.next().filter(|_| of_rank_4.next().is_none()))
            .filter(|input| matches!(rank(input), Some(4) | None))
            .ok_or_else(|| not_taken("pictures", inputs))?;

        let is_channels = |size: &usize| matches!(size, 1 | 3);
        let second = fixed_size(input, 1).filter(is_channels);
        let last = fixed_size(input, 3).filter(is_channels);
        let (layout, channels) = match (second, last) {
            (None, Some(channels)) => (Layout::ChannelsLast, channels),
            (channels, _) => (Layout::ChannelsFirst, channels.unwrap_or(3)),
        };

        let recipe = Recipe::read(sidecars)?;
        if let Some(normalize) = &recipe.normalize {
            let fits = |len: usize| len == 1 || len == channels;
            if !fits(normalize.mean.len()) || !fits(normalize.std.len()) {
                let problem =
                    format!("`image_mean` and `image_std` are not for {channels} channels");
                return Err(InputError::bad_file("preprocessor_config.json", problem));
            }
        }
        let mask = inputs.iter().find(|input| input.name == "pixel_mask").cloned();
        Ok(ImageInput { recipe, input: input.clone(), layout, channels, mask })
    }

    /// Decodes and prepares a batch of pictures, which must come out at the same size.
    pub fn prepare(&self, pictures: &[Source]) -> Result<Prepared, InputError> {
        check_batch(&self.input, "pictures", pictures.len())?;
        let mut size = None;
        let mut batch = Vec::new();
        for source in pictures {
            let pixels = self.pixels(source)?;
            let (height, width) = *size.get_or_insert((pixels.height, pixels.width));
            if (pixels.height, pixels.width) != (height, width) {
                let problem = format!(
                    "this model keeps proportions, and the picture comes out at {} × {} while \
                     the first one has {width} × {height}; run them one at a time",
                    pixels.width, pixels.height
                );
                return Err(InputError::content(&source.name, problem));
            }
            batch.push(pixels);
        }
        let (height, width) = size.unwrap_or_default();
        let (height, width) = (height as usize, width as usize);
        let dims = match self.layout {
            Layout::ChannelsFirst => [batch.len(), self.channels, height, width],
            Layout::ChannelsLast => [batch.len(), height, width, self.channels],
        };
        let mut tensors = vec![self.tensor(&dims, &batch)?];
        if let Some(mask) = &self.mask {
            let dims = [batch.len(), height, width];
            tensors.push(from_ints(mask, &dims, &vec![1; dims.iter().product()])?);
        }
        Ok(Prepared { tensors, mask: None, truncated: Vec::new() })
    }

    fn pixels(&self, source: &Source) -> Result<Pixels, InputError> {
        let mut pixels = Pixels::decode(source, self.channels)?;
        if let Some((target, filter)) = self.recipe.resize {
            pixels = pixels
                .resized(target, filter)
                .map_err(|problem| InputError::content(&source.name, problem))?;
        }
        if let Some((height, width)) = self.recipe.crop {
            pixels = pixels.center_cropped(height, width);
        }
        Ok(pixels)
    }

    fn tensor(&self, dims: &[usize], batch: &[Pixels]) -> Result<(String, Tensor), InputError> {
        let raw = self.recipe.rescale.is_none() && self.recipe.normalize.is_none();
        if raw && self.input.dtype == Some(DataType::U8) {
            let bytes: Vec<u8> = batch
                .iter()
                .flat_map(|pixels| self.arranged(pixels))
                .map(|(_, byte)| byte)
                .collect();
            let tensor = Tensor::from_slice(dims, &bytes)?;
            check_input(&self.input, &tensor)?;
            return Ok((self.input.name.clone(), tensor));
        }
        let tables: Vec<Vec<f32>> = (0..self.channels).map(|channel| self.table(channel)).collect();
        let values: Vec<f32> = batch
            .iter()
            .flat_map(|pixels| self.arranged(pixels))
            .map(|(channel, byte)| tables[channel][usize::from(byte)])
            .collect();
        from_floats(&self.input, dims, &values)
    }

    /// What each byte of a channel becomes. Rounded where the original processors round.
    fn table(&self, channel: usize) -> Vec<f32> {
        let pick = |list: &[f32]| list[channel.min(list.len() - 1)];
        let value = |byte: u8| {
            let rescaled = match self.recipe.rescale {
                Some(factor) => (f64::from(byte) * factor) as f32,
                None => f32::from(byte),
            };
            match &self.recipe.normalize {
                Some(normalize) => (rescaled - pick(&normalize.mean)) / pick(&normalize.std),
                None => rescaled,
            }
        };
        (0..=255).map(value).collect()
    }

    /// The bytes in the order of the model's layout, each with the channel it ends up in.
    fn arranged<'a>(&self, pixels: &'a Pixels) -> impl Iterator<Item = (usize, u8)> + use<'a> {
        let (channels, area) = (self.channels, pixels.height as usize * pixels.width as usize);
        let (layout, flip) = (self.layout, self.recipe.flip_channels);
        (0..area * channels).map(move |index| {
            let (pixel, channel) = match layout {
                Layout::ChannelsFirst => (index % area, index / area),
                Layout::ChannelsLast => (index / channels, index % channels),
            };
            let from = if flip { channels - 1 - channel } else { channel };
            (channel, pixels.bytes[pixel * channels + from])
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    ChannelsFirst,
    ChannelsLast,
}

#[cfg(test)]
mod tests {
    use ::image::ImageFormat;

    use super::super::pixels::tests::{encoded, picture};
    use super::super::tensors::tests::value;
    use super::*;

    const CLIP: &str = r#"{"crop_size": {"height": 5, "width": 5}, "do_center_crop": true,
        "do_convert_rgb": true, "do_normalize": true, "do_rescale": true, "do_resize": true,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
        "image_processor_type": "CLIPImageProcessor", "resample": 3,
        "rescale_factor": 0.00392156862745098, "size": {"shortest_edge": 6}}"#;

    const PLAIN: &str = r#"{"do_resize": false, "do_rescale": false}"#;

    fn input(config: &str, inputs: &[Value]) -> Result<ImageInput, InputError> {
        let sidecars = Sidecars::from_iter([("preprocessor_config.json", config.to_owned())]);
        ImageInput::new(&sidecars, inputs)
    }

    fn png(width: u32, height: u32) -> Source {
        encoded(picture(width, height), ImageFormat::Png)
    }

    #[test]
    fn clip_preprocessing_gives_the_values_of_pillow_and_numpy() {
        let inputs = [value("pixel_values", DataType::F32, &[0, 3, 5, 5])];
        let prepared = input(CLIP, &inputs).unwrap().prepare(&[png(13, 9)]).unwrap();
        let (name, tensor) = &prepared.tensors[0];
        assert_eq!((name.as_str(), tensor.dims()), ("pixel_values", &[1, 3, 5, 5][..]));
        // Every second row and column of each channel.
        let expected = [
            -1.529491, -1.149932, -0.770373, -0.69738, 0.105533, 0.485092, 0.120131, 0.718667,
            1.069029, -0.731569, -0.341367, 0.048835, 0.123874, 0.949301, 1.354511, 0.964309,
            1.594635, 0.078851, 0.197748, 0.56747, 0.965632, 1.008292, 1.548654, -0.029773,
            1.804615, 0.112428, -0.968297,
        ];
        let values = tensor.to_vec::<f32>().unwrap();
        let places = (0..75).filter(|place| place % 5 % 2 == 0 && place / 5 % 5 % 2 == 0);
        for (place, expected) in places.zip(expected) {
            assert!((values[place] - expected).abs() < 1e-5, "{place}: {}", values[place]);
        }
    }

    #[test]
    fn the_layout_and_type_follow_the_models_input() {
        let prepare = |dtype, dims: &[usize]| {
            let inputs = [value("image", dtype, dims)];
            input(PLAIN, &inputs).unwrap().prepare(&[png(2, 1)]).unwrap().tensors.remove(0).1
        };
        // Two pixels: (0, 50, 100) and (7, 57, 107).
        let first = prepare(DataType::F32, &[0, 3, 0, 0]);
        assert_eq!(
            first,
            Tensor::from_slice(&[1, 3, 1, 2], &[0f32, 7., 50., 57., 100., 107.]).unwrap()
        );
        let last = prepare(DataType::U8, &[0, 0, 0, 3]);
        assert_eq!(last, Tensor::from_slice(&[1, 1, 2, 3], &[0u8, 50, 100, 7, 57, 107]).unwrap());
        let grey = prepare(DataType::F32, &[1, 1, 0, 0]);
        assert_eq!(grey.to_vec::<f32>().unwrap(), [41.0, 48.0]);
    }

    #[test]
    fn channels_can_be_flipped_and_masks_are_all_picture() {
        let inputs = [
            value("pixel_values", DataType::F32, &[0, 3, 0, 0]),
            value("pixel_mask", DataType::I64, &[0, 0, 0]),
        ];
        let config = r#"{"do_resize": false, "do_rescale": false, "do_flip_channel_order": true}"#;
        let prepared = input(config, &inputs).unwrap().prepare(&[png(1, 1), png(1, 1)]).unwrap();
        let values = prepared.tensors[0].1.to_vec::<f32>().unwrap();
        assert_eq!(values, [100.0, 50.0, 0.0, 100.0, 50.0, 0.0]);
        assert_eq!(prepared.tensors[1].1, Tensor::from_slice(&[2, 1, 1], &[1i64, 1]).unwrap());
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let pixels = [value("pixel_values", DataType::F32, &[0, 3, 4, 4])];
        let message = |result: Result<Prepared, InputError>| result.unwrap_err().to_string();
        assert_eq!(
            message(input(PLAIN, &pixels).unwrap().prepare(&[png(5, 4)])),
            "the model's input \"pixel_values\" takes f32[?, 3, 4, 4], not f32[1, 3, 4, 5]"
        );
        let any = [value("pixel_values", DataType::F32, &[0, 3, 0, 0])];
        let mixed = message(input(PLAIN, &any).unwrap().prepare(&[png(5, 4), png(4, 4)]));
        assert!(mixed.contains("comes out at 4 × 4 while the first one has 5 × 4"), "{mixed}");
        let text = [value("input_ids", DataType::I64, &[0, 0])];
        let not_taken = input(PLAIN, &text).unwrap_err().to_string();
        assert_eq!(
            not_taken,
            "this model does not take pictures: its inputs are input_ids i64[?, ?]"
        );
        let bytes = [value("pixel_values", DataType::U8, &[0, 3, 0, 0])];
        let scaled = message(input(CLIP, &bytes).unwrap().prepare(&[png(13, 9)]));
        assert!(scaled.ends_with("takes u8[?, 3, ?, ?], not fractional numbers"), "{scaled}");
        let grey = [value("pixel_values", DataType::F32, &[0, 1, 0, 0])];
        assert!(input(CLIP, &grey).unwrap_err().to_string().contains("are not for 1 channels"));
        let missing = ImageInput::new(&Sidecars::default(), &pixels).unwrap_err().to_string();
        assert!(missing.starts_with("this model has no preprocessor_config.json"), "{missing}");
    }
}
