//! Pictures to patches: sized, normalised, cut. No weights.

use super::{
    grid::Grid,
    resize::{CHANNELS, Picture, resize},
    spec::{PictureSpec, VisionSpec},
    target::cells,
};

/// The patches of several pictures or videos, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Patches {
    /// `[patches, frames · 3 · side · side]`, row-major over each grid.
    pub(crate) numbers: Vec<f32>,
    pub(crate) grids: Vec<Grid>,
}

/// Frames of one size, each `[height, width, 3]`. A picture is a single one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frames<'a> {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) rgb: &'a [&'a [u8]],
}

/// Prepares pictures as the model was taught.
pub(crate) struct Preparation<'a> {
    vision: &'a VisionSpec,
    pictures: &'a PictureSpec,
    /// What each of the 256 values of a channel becomes.
    normalised: [[f32; 256]; CHANNELS],
}

impl<'a> Preparation<'a> {
    pub(crate) fn new(vision: &'a VisionSpec, pictures: &'a PictureSpec) -> Self {
        let normalised = std::array::from_fn(|channel| {
            let (mean, deviation) = (pictures.mean[channel], pictures.deviation[channel]);
            std::array::from_fn(|value| (value as f32 / 255.0 - mean) / deviation)
        });
        Self {
            vision,
            pictures,
            normalised,
        }
    }

    /// Adds the patches of a picture, or of a video when there are several frames: clips of consecutive frames, the last one
    /// repeated where they do not come out even.
    pub(crate) fn add(&self, frames: Frames<'_>, to: &mut Patches) {
        let sized: Vec<Picture> = frames.rgb.iter().map(|rgb| self.size(&frames, rgb)).collect();
        let Some(last) = sized.last() else {
            return;
        };
        let grid = Grid {
            clips: sized.len().div_ceil(self.vision.frames),
            rows: last.height / self.vision.patch,
            columns: last.width / self.vision.patch,
        };
        for clip in 0..grid.clips {
            let frame = |index: usize| sized.get(clip * self.vision.frames + index).unwrap_or(last);
            let clip: Vec<&Picture> = (0..self.vision.frames).map(frame).collect();
            self.cut(&clip, grid, &mut to.numbers);
        }
        to.grids.push(grid);
    }

    /// Brings one frame to its target size.
    pub(crate) fn size(&self, frames: &Frames<'_>, rgb: &[u8]) -> Picture {
        let tokens_max = match frames.rgb.len() {
            1 => self.pictures.image_tokens_max,
            _ => self.pictures.frame_tokens_max,
        };
        let cell = self.vision.cell();
        let target = cells(frames.height as u32, frames.width as u32, cell, tokens_max);
        let [height, width] = target.map(|side| (side * cell) as usize);
        let picture = Picture {
            height: frames.height,
            width: frames.width,
            rgb: rgb.to_vec(),
        };
        resize(picture, height, width, self.pictures.filter)
    }

    /// Adds the patches of one clip: of each, frame after frame, channel after channel, row after row.
    fn cut(&self, clip: &[&Picture], grid: Grid, to: &mut Vec<f32>) {
        let side = self.vision.patch;
        to.reserve(grid.clip() * self.vision.patch_len());
        for (row, column) in (0..grid.rows).flat_map(|row| (0..grid.columns).map(move |column| (row, column))) {
            for (picture, (channel, table)) in clip.iter().flat_map(|picture| {
                self.normalised
                    .iter()
                    .enumerate()
                    .map(move |channel| (picture, channel))
            }) {
                for y in row * side..(row + 1) * side {
                    let start = (y * picture.width + column * side) * CHANNELS;
                    let pixels = picture.rgb[start..start + side * CHANNELS].iter();
                    to.extend(
                        pixels
                            .skip(channel)
                            .step_by(CHANNELS)
                            .map(|value| table[usize::from(*value)]),
                    );
                }
            }
        }
    }
}
