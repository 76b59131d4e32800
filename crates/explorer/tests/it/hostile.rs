//! Files and requests that nobody should send.

use monosplit::assets;
use monosplit_explorer::Session;
use serde_json::json;

use crate::session::opened;

/// Every refusal is one line, and the session answers as before.
#[test]
fn truncated_files_and_wrong_requests_are_refused_in_one_line() {
    let mut session = opened();
    let network = |length: usize| &assets::PETS_SMALL[..length];
    let picture = |length: usize| &assets::CHELSEA[..length];
    let open_network = json!({"type": "open-network", "name": "n.onnx"});
    let open_picture = json!({"type": "open-picture", "name": "p.png"});
    let explain = |more: serde_json::Value| {
        let mut request =
            json!({"type": "explain", "subject": {"picture": 0}, "maps": [{"method": "splitcam"}]});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    let cases: Vec<(String, &[u8])> = vec![
        (open_network.to_string(), network(0)),
        (open_network.to_string(), network(100)),
        (open_network.to_string(), network(assets::PETS_SMALL.len() / 2)),
        (open_network.to_string(), assets::CHELSEA),
        (open_picture.to_string(), picture(0)),
        (open_picture.to_string(), picture(assets::CHELSEA.len() / 2)),
        (open_picture.to_string(), assets::PETS_SMALL),
        (String::new(), b""),
        ("{".into(), b""),
        ("[1, 2]".into(), b""),
        (r#"{"type": "shutdown"}"#.into(), b""),
        (explain(json!({"subject": {"picture": 99}})).to_string(), b""),
        (explain(json!({"class": 37})).to_string(), b""),
        (explain(json!({"class": 3, "rival": 99})).to_string(), b""),
        (explain(json!({"rival": 3})).to_string(), b""),
        (explain(json!({"alpha": 7.0})).to_string(), b""),
        (explain(json!({"alpha": "much"})).to_string(), b""),
        (explain(json!({"maps": []})).to_string(), b""),
        (explain(json!({"maps": vec![json!({"method": "splitcam"}); 5]})).to_string(), b""),
        (explain(json!({"maps": [{"method": "nothing"}]})).to_string(), b""),
        (explain(json!({"maps": [{"method": "splitcam", "layer": "nowhere"}]})).to_string(), b""),
        (explain(json!({"subject": {"picture": 0, "preset": "none of them"}})).to_string(), b""),
        (
            explain(json!({"subject": {"picture": 0, "edits": [{"becomes": "swap", "rectangle": [0, 0, 1, 1]}]}}))
                .to_string(),
            b"",
        ),
        (
            explain(json!({"subject": {"picture": 0, "edits": [{"becomes": "grey", "stroke": {"radius": -1, "points": [0, 0]}}]}}))
                .to_string(),
            b"",
        ),
        (r#"{"type": "curves", "subject": {"picture": 0}, "map": {"method": "splitcam"}, "steps": 0}"#.into(), b""),
        (r#"{"type": "verify", "subject": {"picture": 0}, "samples": 1000000}"#.into(), b""),
    ];
    for (request, payload) in cases {
        let refused = session.handle(request.as_bytes(), payload);
        let line = refused.error().unwrap_or_else(|| panic!("{request} was answered"));
        assert!(!line.is_empty() && !line.contains('\n') && line.chars().count() <= 600, "{request}: {line}");
        let fine = session.handle(explain(json!({})).to_string().as_bytes(), &[]);
        assert_eq!(fine.error(), None, "after {request}");
    }
}

#[test]
fn nothing_is_explained_before_a_network_is_open() {
    let mut session = Session::default();
    let request = json!({"type": "explain", "subject": {"picture": 0}, "maps": [{"method": "splitcam"}]});
    assert_eq!(session.handle(request.to_string().as_bytes(), &[]).error(), Some("open a network first"));
}

/// Rectangles and strokes far outside of the picture cost nothing.
#[test]
fn edits_of_any_size_are_clipped() {
    let mut session = opened();
    let edits = json!([
        {"becomes": "grey", "rectangle": [i64::MIN, i64::MIN, i64::MAX, 1]},
        {"becomes": "blur", "stroke": {"radius": 1e300, "points": [1e300, -1e300, 0, 0]}},
    ]);
    let request = json!({"type": "classes", "subject": {"picture": 0, "edits": edits}});
    assert_eq!(session.handle(request.to_string().as_bytes(), &[]).error(), None);
}
