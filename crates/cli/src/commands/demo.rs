//! `monosplit demo`: explanations of built-in pictures by built-in networks. Each picture of its page is drawn by a command of
//! this program, which is printed below it and can be pasted: the files it names are written beside the page.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use monosplit::catalogue::ValueBounds;
use monosplit::engine::Cpu;
use monosplit::explain::Finish;
use monosplit::graph::{Error, Result, write_atomically};
use monosplit::image::Picture;
use monosplit::render;
use monosplit::render::{OverlayOptions, Page, PageFigure, TerminalColours};
use monosplit::{InputFile, Model, Sample, SampleReader, assets};

use super::drawing::Draws;
use super::panels::{Panel, Panels, picture_of};
use super::{Command, parsed};
use crate::failure::Failure;
use crate::json::{self, WrittenFiles};
use crate::output_style;
use crate::shell_word::quoted;
use crate::table::printable;

const NETWORK: (&str, &[u8]) = ("pets-small.onnx", assets::PETS_SMALL);
const PHOTOGRAPH: (&str, &[u8]) = ("chelsea.png", assets::CHELSEA);
const DIGITS: (&str, &[u8]) = ("digits.onnx", assets::DIGITS);

/// The widest drawing in the terminal: two of them beside each other fit into 80 columns.
const WIDEST: usize = 38;
/// Where two drawings beside each other would be narrower than this, they stand below each other.
const NARROWEST: usize = 24;

/// Explains a photograph of a cat with a network that is built in
#[derive(Args)]
#[command(long_about = "\
Explains a photograph of a cat with a network that is built in: there is nothing to set up.

  monosplit demo

A small residual network that knows 37 breeds of cats and dogs looks at the photograph; what it sees
is printed, and where it sees it is drawn into the terminal. The folder demo/ gets a page of
pictures, index.html, which needs nothing else, and the networks and pictures themselves: below each
picture of the page is the command that made it, to be tried and changed.")]
pub(crate) struct Demo {
    /// Write the page into this folder, which is made if it is not there.
    #[arg(short = 'o', long, alias = "output", value_name = "DIR", default_value = "demo")]
    out: PathBuf,

    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
}

/// Something on the page: words, and the command that shows what they say.
struct DemoFigure {
    heading: &'static str,
    words: &'static str,
    caption: &'static str,
    /// The command; `{}` stands for the folder.
    command: &'static str,
    /// Whether it is drawn small, beside others of its kind.
    small: bool,
}

/// One of the other digits.
const fn digit(caption: &'static str, command: &'static str) -> DemoFigure {
    DemoFigure { heading: "", words: "", caption, command, small: true }
}

/// What the network sees.
const PREDICTION: &str = "monosplit run {}/pets-small.onnx {}/chelsea.png";

const FIGURES: [DemoFigure; 10] = [
    DemoFigure {
        heading: "Where it sees that",
        words: "Three maps that are read off the pair of networks. Red speaks for the class, blue against it; where \
                nothing is below zero, dark is much.",
        caption: "SplitCAM, SplitGrad and SplitLRP.",
        command: "monosplit compare {}/pets-small.onnx {}/chelsea.png \
                  --methods splitcam,splitgrad:alpha=0.3@layer2.1.conv2,splitlrp:map=pos@layer3.2.conv2 \
                  -o {}/split-methods.png",
        small: false,
    },
    DemoFigure {
        heading: "",
        words: "",
        caption: "The same by four methods from elsewhere: Saliency, LayerCAM, Grad-CAM and LRP.",
        command: "monosplit compare {}/pets-small.onnx {}/chelsea.png \
                  --methods saliency,layercam,gradcam,lrp -o {}/other-methods.png",
        small: false,
    },
    DemoFigure {
        heading: "g versus h",
        words: "The network f is the difference of two networks that never decrease: f = g − h. What g sees speaks \
                for the class, what h sees against it; what both see does not count.",
        caption: "SplitCAM of g, SplitCAM of h, and what is left when h is taken from g.",
        command: "monosplit figure split {}/pets-small.onnx {}/chelsea.png --layer layer3.2.conv2 --alpha 0.34 \
                  -o {}/split.png",
        small: false,
    },
    DemoFigure {
        heading: "From the pair to the gradient",
        words: "α says how much of what the two networks share is taken off. At 0 a map is made of the true gradient \
                of g, at 0.5 of the ordinary gradient of f.",
        caption: "SplitCAM from α = 0 to α = 0.5.",
        command: "monosplit figure alpha {}/pets-small.onnx {}/chelsea.png --layer layer3.2.conv2 -o {}/alpha.png",
        small: false,
    },
    DemoFigure {
        heading: "Layer by layer",
        words: "Early layers see edges and texture, late layers see parts of the animal.",
        caption: "SplitCAM at the last convolution of each size.",
        command: "monosplit figure layers {}/pets-small.onnx {}/chelsea.png -o {}/layers.png",
        small: false,
    },
    DemoFigure {
        heading: "What is missing",
        words: "A network that was trained as a difference explains itself. In red is what is there and speaks for a \
                digit; in blue what is missing for it: close the gaps of this 3 on the left, and it is an 8.",
        caption: "A handwritten 3, seen by a small network that knows digits.",
        command: "monosplit counterfactual {}/digits.onnx {}/3.png -o {}/counterfactual.png",
        small: false,
    },
    digit("A 4.", "monosplit counterfactual {}/digits.onnx {}/4.png -o {}/counterfactual-4.png"),
    digit("A 7.", "monosplit counterfactual {}/digits.onnx {}/7.png -o {}/counterfactual-7.png"),
    digit("An 8.", "monosplit counterfactual {}/digits.onnx {}/8.png -o {}/counterfactual-8.png"),
    digit("A 9.", "monosplit counterfactual {}/digits.onnx {}/9.png -o {}/counterfactual-9.png"),
];

impl Demo {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        if !self.json {
            return self.show(out);
        }
        self.show(&mut std::io::sink())?;
        let names = ["index.html"].into_iter().chain(built_in().map(|(name, _)| name));
        json::print(&WrittenFiles::new(names.map(|name| self.out.join(name))), out)
    }

    fn show(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let begun = Instant::now();
        let path = self.out.join("index.html");
        self.check(&path)?;
        std::fs::create_dir_all(&self.out).map_err(|cause| Error::io(&self.out, cause))?;
        for (name, bytes) in built_in() {
            write_atomically(self.out.join(name), bytes)?;
        }
        writeln!(out, "A network that knows 37 breeds of cats and dogs looks at a photograph. It sees:\n")?;
        let (command, seen) = self.printed(PREDICTION)?;
        out.write_all(seen.as_bytes())?;
        writeln!(out, "\nWhere it sees that:\n")?;
        self.draw(out)?;
        out.flush()?;
        let page = Page::new("monosplit")
            .paragraph(
                "A neural network looked at a photograph of a cat. Where did it find its answer? This page was \
                 made by monosplit demo and needs no other file. Below each picture is the command that made it, \
                 to be tried and changed; where the program is not installed, write cargo run --release -- for \
                 monosplit.",
            )
            .figure(PageFigure::picture(&Picture::decode(PHOTOGRAPH.1)?, "A cat")?.caption("The photograph."))
            .heading("What the network sees")
            .transcript(&command, &seen);
        let page = self.hang(page, out)?;
        write_atomically(&path, page.finish().as_bytes())?;
        writeln!(
            out,
            "\n{} has all of it, with the commands that made it ({:.1} s).",
            printable(&path.display().to_string()),
            begun.elapsed().as_secs_f64()
        )?;
        Ok(())
    }

    /// An error if the path cannot be a folder, or if it holds a page that the demo did not write.
    fn check(&self, page: &Path) -> Result<()> {
        let folder = self.out.display();
        if self.out.exists() && !self.out.is_dir() {
            return Err(Error::argument(format!(
                "{folder} is a file, but a folder of that name is to be made; name another with -o"
            )));
        }
        // A page that cannot be read cannot be recognised as one of the demo.
        let own = std::fs::read_to_string(page).is_ok_and(|html| Page::is_own(&html));
        let other = |(name, bytes): (&str, &[u8])| {
            let path = self.out.join(name);
            (path.exists() && !std::fs::read(&path).is_ok_and(|there| there == bytes)).then_some(path)
        };
        let foreign = page.exists().then(|| page.to_owned()).or_else(|| built_in().find_map(other));
        match foreign.filter(|_| !own) {
            None => Ok(()),
            Some(path) => Err(Error::argument(format!(
                "{} was not written by monosplit and stays as it is; name another folder with -o",
                path.display()
            ))),
        }
    }

    /// Adds the figures to the page and prints the numbers of g and h.
    fn hang(&self, mut page: Page, out: &mut dyn Write) -> Result<Page, Failure> {
        for entry in &FIGURES {
            let command = self.command(entry.command);
            let mut said = Vec::new();
            let drawing = match parsed(&self.words(entry.command))? {
                Command::Compare(compare) => compare.scene(&mut said)?,
                Command::Figure(figure) => figure.scene(&mut said)?,
                Command::Counterfactual(counterfactual) => counterfactual.scene(&mut said)?,
                _ => return Err(Error::argument(format!("`{command}` draws nothing")).into()),
            };
            let figure = PageFigure::drawing(&drawing)?;
            let figure = if entry.small { figure.beside() } else { figure.across() };
            let figure = figure.caption(entry.caption).command(&command);
            if !entry.heading.is_empty() {
                page = page.heading(entry.heading).paragraph(entry.words);
            }
            page = page.figure(figure);
            if entry.command.contains("figure split") {
                let said = String::from_utf8_lossy(&said).into_owned();
                let numbers: Vec<&str> = said.lines().skip(1).collect();
                writeln!(out, "\nf = g − h, for the best classes:\n\n{}", numbers.join("\n"))?;
                page = page
                    .paragraph(
                        "The scores of the best classes, as the differences they are, f = g − h. Both streams are \
                         kept small on their way through the network: the difference is that of f, g and h \
                         themselves are moved by the stabiliser.",
                    )
                    .transcript(&command, &said);
            }
        }
        Ok(page)
    }

    /// A command as it is pasted into a shell.
    fn command(&self, command: &str) -> String {
        command.replace("{}", &quoted(&self.out.display().to_string()))
    }

    /// The same as its arguments.
    fn words(&self, command: &str) -> Vec<String> {
        let folder = self.out.display().to_string();
        command.split_whitespace().map(|word| word.replace("{}", &folder)).collect()
    }

    /// A command and what it prints.
    fn printed(&self, command: &str) -> Result<(String, String), Failure> {
        let mut printed = Vec::new();
        super::execute(Some(&parsed(&self.words(command))?), &mut printed)?;
        Ok((self.command(command), String::from_utf8_lossy(&printed).into_owned()))
    }

    /// Draws the photograph and maps into the terminal.
    fn draw(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let model = Model::open(self.out.join(NETWORK.0))?;
        let preprocess = monosplit::image::Preset::Imagenet.options();
        let preprocess = preprocess.fit(model.picture_input()?.size, monosplit::image::Fit::Auto)?;
        let source = InputFile::Picture(self.out.join(PHOTOGRAPH.0));
        let sample = SampleReader::new(&model, vec![source], Some(preprocess))?.take(1)?.pop();
        let sample = sample.ok_or_else(|| Error::argument("the photograph is empty"))?;
        let words = ["splitcam", "splitgrad:alpha=0.3@layer2.1.conv2", "splitlrp:map=pos@layer3.2.conv2"];
        let panels = words.map(|word| Panel::parse(&model, word, &ValueBounds::default()));
        let panels = panels.into_iter().collect::<Result<Vec<_>>>()?;
        let titles: Vec<String> = panels.iter().map(|panel| panel.header.clone()).collect();
        let panels = Panels::new(&model, panels, Finish::default(), &Cpu::default())?;
        let explained = panels.of(&sample, &monosplit::explain::Class::Top)?;
        let colours = output_style::colours();
        let (beside, columns) = arrangement(output_style::columns());
        let photograph = render::terminal_picture(picture_of(&sample)?, columns, colours)?;
        let mut drawings = vec![("the photograph", photograph)];
        for (title, map) in titles.iter().zip(&explained.maps) {
            let map = render::ScalarField::from_tensor(&map.values, 0)?;
            drawings.push((title, heatmap(&sample, &map, columns, colours)?));
        }
        for row in drawings.chunks(beside) {
            writeln!(out, "{}", render::terminal_row(row, columns))?;
        }
        Ok(())
    }
}

/// The files that are put beside the page.
fn built_in() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    [NETWORK, PHOTOGRAPH, DIGITS].into_iter().chain(assets::DIGIT_PICTURES)
}

/// The number of drawings beside each other in a terminal of this width, and the width of each.
fn arrangement(columns: usize) -> (usize, usize) {
    // The last column stays free because some terminals wrap a line that fills them. Two columns separate drawings.
    let half = columns.saturating_sub(3) / 2;
    match half >= NARROWEST {
        true => (2, half.min(WIDEST)),
        false => (1, columns.saturating_sub(1).clamp(1, WIDEST)),
    }
}

/// A map over the picture, or in shades of ink alone where there are no colours.
fn heatmap(
    sample: &Sample,
    map: &render::ScalarField,
    columns: usize,
    colours: TerminalColours,
) -> Result<String> {
    if colours == TerminalColours::None {
        return render::terminal_map(map, &render::Scale::new(map, Some(99.5))?, columns, colours);
    }
    let mixed = render::blend(picture_of(sample)?, map, &OverlayOptions::default())?;
    render::terminal_picture(&mixed.picture, columns, colours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawings_never_fill_more_columns_than_there_are() {
        for columns in 2..300 {
            let (beside, width) = arrangement(columns);
            assert!(beside * width + 2 * (beside - 1) < columns, "{columns}: {beside} of {width}");
            assert!((1..=WIDEST).contains(&width));
        }
        assert_eq!(arrangement(80), (2, 38));
    }
}
