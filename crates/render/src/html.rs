//! Pages of HTML that need no other file and no script: figures with the command that made them, and tables. They fit a wide screen as well as a telephone.

use std::fmt::Write;

use monosplit_graph::Result;
use monosplit_image::Picture;

use crate::scene::Scene;
use crate::svg::{data_uri, escaped};
use crate::table::Table;
use crate::text::clean;
use crate::token_text::TokenText;

const STYLE: &str = include_str!("page.css");

/// The generator in the head of a page.
const GENERATOR: &str = "monosplit";

/// Figures wider than this have a row of the page to themselves; on a narrow screen they are scrolled, since
/// their words would be too small to read.
const WIDE: f64 = 560.0;

/// `text` as it stands in a page or in a quoted attribute: what HTML would read as markup is written out and
/// control characters are replaced.
pub fn escape(text: &str) -> String {
    escaped(&clean(text))
}

/// A page under construction; what is added appears from top to bottom.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    title: String,
    body: String,
    figures_open: bool,
}

/// A picture in a page.
#[derive(Clone, Debug, PartialEq)]
pub struct PageFigure {
    content: String,
    caption: String,
    command: String,
    width: Width,
}

/// The room a figure has on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    /// Its own width, among others.
    Own,
    /// That of its column, among others.
    Beside,
    /// A row of its own.
    Row,
}

impl Width {
    fn of(width: f64) -> Self {
        if width > WIDE { Width::Row } else { Width::Own }
    }
}

impl PageFigure {
    /// A drawing, which stays sharp at every size and whose words can be searched.
    pub fn drawing(scene: &Scene) -> Result<Self> {
        let width = Width::of(scene.width());
        Ok(PageFigure { content: scene.to_svg()?, caption: String::new(), command: String::new(), width })
    }

    /// A picture; `shown` describes it for screen readers.
    pub fn picture(picture: &Picture, shown: &str) -> Result<Self> {
        let (source, shown) = (data_uri(picture)?, escape(shown));
        let (width, height) = (picture.width(), picture.height());
        let content =
            format!("<img src=\"{source}\" alt=\"{shown}\" width=\"{width}\" height=\"{height}\"/>\n");
        let width = Width::of(width as f64);
        Ok(PageFigure { content, caption: String::new(), command: String::new(), width })
    }

    /// The same in a row of its own, however narrow it is drawn: for pictures with many parts.
    #[must_use]
    pub fn across(mut self) -> Self {
        self.width = Width::Row;
        self
    }

    /// The same beside others, small, however wide it is drawn: for one of several pictures of a kind.
    #[must_use]
    pub fn beside(mut self) -> Self {
        self.width = Width::Beside;
        self
    }

    /// Words below the picture.
    #[must_use]
    pub fn caption(mut self, caption: &str) -> Self {
        self.caption = escape(caption);
        self
    }

    /// The command line that made the picture.
    #[must_use]
    pub fn command(mut self, command: &str) -> Self {
        self.command = arguments(command);
        self
    }
}

/// A command line of which each argument is held together: a line that ends in `--` cannot be read.
fn arguments(command: &str) -> String {
    let words = command.split_whitespace().map(|word| format!("<span>{}</span>", escape(word)));
    words.collect::<Vec<_>>().join(" ")
}

impl Page {
    /// A page headed by `title`.
    pub fn new(title: &str) -> Self {
        let title = escape(title);
        Page { body: format!("<h1>{title}</h1>\n"), title, figures_open: false }
    }

    /// A heading over what follows.
    #[must_use]
    pub fn heading(self, words: &str) -> Self {
        self.block(&format!("<h2>{}</h2>\n", escape(words)))
    }

    /// A paragraph.
    #[must_use]
    pub fn paragraph(self, words: &str) -> Self {
        self.block(&format!("<p>{}</p>\n", escape(words)))
    }

    /// A table.
    #[must_use]
    pub fn table(self, table: &Table) -> Self {
        self.block(&table.to_html())
    }

    /// A text whose words have the colours of their values.
    #[must_use]
    pub fn tokens(self, text: &TokenText) -> Self {
        self.block(&text.to_html())
    }

    /// A command and what it prints.
    #[must_use]
    pub fn transcript(self, command: &str, printed: &str) -> Self {
        let lines: Vec<String> = printed.trim_end().lines().map(escape).collect();
        self.block(&format!(
            "<figure>\n<pre>{}</pre>\n<figcaption><code>{}</code></figcaption>\n</figure>\n",
            lines.join("\n"),
            arguments(command)
        ))
    }

    /// A figure; figures that follow each other stand side by side where there is room.
    #[must_use]
    pub fn figure(mut self, figure: PageFigure) -> Self {
        if !std::mem::replace(&mut self.figures_open, true) {
            self.body.push_str("<div class=\"figures\">\n");
        }
        self.body.push_str(match figure.width {
            Width::Own => "<figure>\n",
            Width::Beside => "<figure class=\"beside\">\n",
            Width::Row => "<figure class=\"wide\">\n",
        });
        let _ = write!(self.body, "<div class=\"drawing\">\n{}</div>\n", figure.content);
        if !figure.caption.is_empty() || !figure.command.is_empty() {
            self.body.push_str("<figcaption>");
            self.body.push_str(&figure.caption);
            if !figure.command.is_empty() {
                let _ = write!(self.body, "<code>{}</code>", figure.command);
            }
            self.body.push_str("</figcaption>\n");
        }
        self.body.push_str("</figure>\n");
        self
    }

    fn block(mut self, html: &str) -> Self {
        self.close_figures();
        self.body.push_str(html);
        self
    }

    fn close_figures(&mut self) {
        if std::mem::take(&mut self.figures_open) {
            self.body.push_str("</div>\n");
        }
    }

    /// The finished page.
    pub fn finish(mut self) -> String {
        self.close_figures();
        let Page { title, body, .. } = self;
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"generator\" content=\"{GENERATOR} {}\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n\
             </body>\n</html>\n",
            env!("CARGO_PKG_VERSION")
        )
    }

    /// Whether `html` was written by this crate, by the generator in its head.
    pub fn is_own(html: &str) -> bool {
        let head = html.split("</head>").next().unwrap_or_default();
        head.contains(&format!("<meta name=\"generator\" content=\"{GENERATOR} "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene;
    use crate::table::{Best, TableEntry};
    use crate::xml::assert_well_formed;

    const HOSTILE: &str = "</p><script>alert('x')</script>\0\u{202e} & \"q\"";

    fn page() -> String {
        let picture = Picture::new(2, 1, vec![9; 6]).unwrap();
        let table = Table {
            caption: HOSTILE.into(),
            columns: vec![(HOSTILE.into(), Best::None), ("score".into(), Best::Highest)],
            rows: vec![vec![TableEntry::Words(HOSTILE.into()), TableEntry::Number(f64::NAN)], vec![]],
            headings: vec![(1, HOSTILE.into())],
            ..Table::default()
        };
        Page::new(HOSTILE)
            .paragraph(HOSTILE)
            .transcript(HOSTILE, HOSTILE)
            .figure(PageFigure::drawing(&scene::sample()).unwrap().caption(HOSTILE).command(HOSTILE))
            .figure(PageFigure::picture(&picture, HOSTILE).unwrap())
            .heading(HOSTILE)
            .table(&table)
            .figure(PageFigure::picture(&picture, "").unwrap())
            .finish()
    }

    #[test]
    fn a_page_is_well_formed_whatever_the_words_and_runs_nothing() {
        let page = page();
        let tags = assert_well_formed(page.strip_prefix("<!DOCTYPE html>\n").unwrap());
        assert!(tags.iter().all(|tag| tag != "script" && tag != "link"), "{tags:?}");
        assert_eq!(tags.iter().filter(|tag| *tag == "figure").count(), 4);
        assert!(!page.contains('\0') && !page.contains('\u{202e}'));
        assert_eq!(page, self::page());
    }

    #[test]
    fn a_page_of_ours_is_recognised_by_its_head() {
        assert!(Page::is_own(&page()));
        let other = "<html><head><title>monosplit</title></head><body>";
        assert!(!Page::is_own(other) && !Page::is_own(""));
        assert!(!Page::is_own(&format!("{other}{}", page())));
    }

    #[test]
    fn a_page_needs_no_other_file() {
        let page = page();
        for address in ["src=\"", "href=\"", "url("] {
            for (at, _) in page.match_indices(address) {
                assert!(page[at + address.len()..].starts_with("data:image/png;base64,"));
            }
        }
    }
}
