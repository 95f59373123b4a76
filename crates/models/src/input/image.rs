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
