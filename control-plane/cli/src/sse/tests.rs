use super::*;

#[test]
fn cutting_anywhere_changes_nothing() {
    let text =
        ": comment\r\nevent: x\ndata: {\"a\": \"ü\"}\n\ndata:one\ndata: two\n\n\n\ndata: [DONE]\r\n\r\ndata: rest";
    let expected = ["{\"a\": \"ü\"}", "one\ntwo", "[DONE]"];
    for first in 0..=text.len() {
        for second in first..=text.len() {
            let mut parser = Parser::default();
            let bytes = text.as_bytes();
            let mut events = parser.push(&bytes[..first]);
            events.extend(parser.push(&bytes[first..second]));
            events.extend(parser.push(&bytes[second..]));
            assert_eq!(events, expected);
        }
    }
}
