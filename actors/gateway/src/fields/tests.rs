use cluster_messages::{
    ChatMessage, ChatPrompt, Content, Deadline, JsonText, Part, Penalties, RequestId, TextInput, ToolChoice,
    TraceContext,
};

use super::*;

fn header() -> Header {
    Header {
        request: RequestId(0x77),
        deadline: Deadline(5),
        trace: TraceContext::default(),
    }
}

fn read_as(api: Api, body: &str) -> Result<Call, ApiError> {
    let json = Json::parse(body.as_bytes()).unwrap();
    read(api, &json, &Limits::default(), header())
}

/// A chat with `extra` fields.
fn chat(extra: &str) -> Result<Call, ApiError> {
    read_as(
        Api::Chat,
        &format!(r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}]{extra}}}"#),
    )
}

fn completion(extra: &str) -> Result<Call, ApiError> {
    read_as(Api::Completions, &format!(r#"{{"model":"m","prompt":"hi"{extra}}}"#))
}

#[track_caller]
fn refused(call: Result<Call, ApiError>, param: &str, rule: &str) {
    let error = call.expect_err("the request is refused");
    assert_eq!(
        (error.status(), error.param.as_deref()),
        (400, Some(param)),
        "{error:?}"
    );
    assert!(
        error.message.starts_with(param) && error.message.contains(rule),
        "{}",
        error.message
    );
}

#[test]
fn defaults_are_those_of_the_api() {
    let call = chat("").unwrap();
    let text = call.text;
    assert!(!call.stream && !call.include_usage && call.ignored.is_empty());
    assert_eq!((text.max_tokens, text.min_tokens, text.choices), (None, 0, 1));
    assert_eq!(
        (text.logprobs, text.echo, text.ignore_eos, text.priority),
        (None, false, false, 0)
    );
    assert_eq!(
        text.sampling,
        cluster_messages::Sampling {
            seed: 0x77,
            ..Default::default()
        }
    );
    assert_eq!(completion("").unwrap().text.max_tokens, Some(16));
}

#[test]
fn every_field_reaches_the_request() {
    let call = chat(
        r#","temperature":0,"top_p":0.5,"top_k":-1,"min_p":0.1,"n":3,"stop":"x","max_completion_tokens":9,"min_tokens":2,
        "seed":-1,"frequency_penalty":-2,"presence_penalty":2,"repetition_penalty":1.5,"logit_bias":{"7":-100,"3":1.5},
        "logprobs":true,"top_logprobs":20,"stream":true,"stream_options":{"include_usage":true},"stop_token_ids":[1,2],
        "ignore_eos":true,"user":"u","metadata":{"k":"v"},"priority":-3,"cache_salt":"s","continue_final_message":false,
        "chat_template_kwargs":{"thinking":true},"max_tokens":9.0"#,
    )
    .unwrap();
    assert!(call.stream && call.include_usage && call.ignored.is_empty());
    let text = call.text;
    assert_eq!((text.max_tokens, text.min_tokens, text.choices), (Some(9), 2, 3));
    assert_eq!(text.stop, ["x"]);
    assert_eq!(text.stop_token_ids, [1, 2]);
    assert_eq!((text.logprobs, text.ignore_eos, text.priority), (Some(20), true, -3));
    assert_eq!(text.cache_salt, "s");
    let sampling = &text.sampling;
    assert_eq!(
        (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p),
        (0.0, 0.5, 0, 0.1)
    );
    assert_eq!(sampling.seed, u64::MAX);
    assert_eq!(sampling.logit_bias, [(3, 1.5), (7, -100.0)]);
    let penalties = Penalties {
        repetition: 1.5,
        frequency: -2.0,
        presence: 2.0,
    };
    assert_eq!(sampling.penalties, penalties);
    let TextInput::Chat(prompt) = text.input else {
        panic!("a chat")
    };
    assert_eq!(prompt.template_args, Some(JsonText(r#"{"thinking":true}"#.into())));
}

#[test]
fn numbers_out_of_range_are_refused_by_name() {
    for (field, value) in [
        ("temperature", "2.1"),
        ("temperature", "-0.1"),
        ("top_p", "1.1"),
        ("top_k", "-2"),
        ("top_k", "1.5"),
        ("min_p", "2"),
        ("n", "0"),
        ("n", "17"),
        ("max_tokens", "0"),
        ("max_tokens", "-1"),
        ("max_tokens", "\"5\""),
        ("max_completion_tokens", "0"),
        ("seed", "1e30"),
        ("frequency_penalty", "-2.5"),
        ("presence_penalty", "3"),
        ("repetition_penalty", "0"),
        ("stop_token_ids", "[-1]"),
        ("stop_token_ids", "5"),
        ("logit_bias", r#"{"abc":5}"#),
        ("logit_bias", r#"{"5":101}"#),
        ("logit_bias", r#"{"5":1,"05":1}"#),
        ("logit_bias", "[]"),
        ("stream", "1"),
        ("logprobs", "5"),
        ("user", "7"),
        ("priority", "3000000000"),
    ] {
        refused(chat(&format!(r#","{field}":{value}"#)), field, "");
    }
    refused(
        completion(r#","max_tokens":-1"#),
        "max_tokens",
        "use a whole number from 0",
    );
    refused(
        completion(r#","logprobs":true"#),
        "logprobs",
        "must be a whole number, not a boolean",
    );
}

#[test]
fn null_is_the_same_as_absent() {
    let nulls =
        r#","stop":null,"max_tokens":null,"logprobs":null,"tools":null,"response_format":null,"stream_options":null"#;
    assert_eq!(chat(nulls).unwrap().text, chat("").unwrap().text);
}

#[test]
fn stop_lists_have_the_shape_the_api_gives_them() {
    let stops = |value: &str| chat(&format!(r#","stop":{value}"#));
    assert_eq!(stops(r#"["w","x","y","z"]"#).unwrap().text.stop, ["w", "x", "y", "z"]);
    assert!(stops("[]").unwrap().text.stop.is_empty());
    refused(stops(r#""""#), "stop", "empty");
    refused(stops(r#"["a",""]"#), "stop", "empty");
    refused(stops(r#"["a",1]"#), "stop", "must be a string");
    refused(stops(r#"["1","2","3","4","5"]"#), "stop", "at most 4");
    refused(stops(&format!("\"{}\"", "x".repeat(1025))), "stop", "at most 1024");
}

#[test]
fn fields_that_need_each_other_are_checked_together() {
    refused(chat(r#","top_logprobs":2"#), "top_logprobs", "logprobs is true");
    refused(chat(r#","stream_options":{}"#), "stream_options", "stream is true");
    refused(
        chat(r#","max_tokens":5,"max_completion_tokens":6"#),
        "max_tokens",
        "contradicts",
    );
    refused(
        chat(r#","max_tokens":5,"min_tokens":6"#),
        "min_tokens",
        "more than the 5",
    );
    refused(completion(r#","best_of":2"#), "best_of", "differs from n");
    assert!(completion(r#","best_of":2,"n":2"#).is_ok());
    assert!(!chat(r#","stream":true,"stream_options":{}"#).unwrap().include_usage);
}

#[test]
fn what_is_not_served_is_refused_unless_it_asks_for_nothing() {
    for (field, value) in [
        ("response_format", r#"{"type":"json_object"}"#),
        ("tool_choice", r#""any""#),
        ("tool_choice", r#"{"type":"allowed_tools"}"#),
        ("functions", r#"[{"name":"f"}]"#),
        ("modalities", r#"["text","audio"]"#),
        ("service_tier", r#""flex""#),
        ("store", "true"),
        ("guided_json", "{}"),
        ("prediction", "{}"),
    ] {
        refused(chat(&format!(r#","{field}":{value}"#)), field, "support");
    }
    let harmless = r#","response_format":{"type":"text"},"tools":[],"tool_choice":"auto","parallel_tool_calls":true,
        "modalities":["text"],"service_tier":"auto","store":false"#;
    assert!(chat(harmless).unwrap().ignored.is_empty());
}

const TOOLS: &str = r#","tools":[{"type":"function","function":{"name":"f.g","description":"d <&>","strict":true,
    "parameters":{"type":"object","properties":{"z":{"maximum":1.50},"a":{}}}}},
    {"type":"function","function":{"name":"h","description":null,"strict":false}}]"#;

fn chat_of(call: &Call) -> &ChatPrompt {
    match &call.text.input {
        TextInput::Chat(chat) => chat,
        other => panic!("{other:?} is not a chat"),
    }
}

#[test]
fn tools_are_passed_on_as_they_are() {
    let call = chat(TOOLS).unwrap();
    let tools = chat_of(&call).tools.clone().unwrap().0;
    let expected = r#"[{"type":"function","function":{"name":"f.g","description":"d <&>","strict":true,"#;
    assert!(tools.starts_with(expected), "{tools}");
    assert!(
        tools.contains(r#""properties":{"z":{"maximum":1.5},"a":{}}"#),
        "{tools}"
    );
    assert_eq!(
        call.ignored,
        ["tools[0].function.strict"],
        "nothing keeps the model to a schema"
    );
    assert_eq!(
        (call.text.tool_choice, call.text.parallel_tool_calls),
        (ToolChoice::Auto, true)
    );
}

#[test]
fn the_choice_of_tools_is_read_in_all_its_forms() {
    let choice = |value: &str| chat(&format!(r#"{TOOLS},"tool_choice":{value},"parallel_tool_calls":false"#)).unwrap();
    assert!(!choice(r#""auto""#).text.parallel_tool_calls);
    assert_eq!(choice(r#""required""#).text.tool_choice, ToolChoice::Required);
    let named = choice(r#"{"type":"function","function":{"name":"h"}}"#);
    assert_eq!(named.text.tool_choice, ToolChoice::Named("h".into()));
    assert!(chat_of(&named).tools.is_some());
    let none = choice(r#""none""#);
    assert_eq!(
        (none.text.tool_choice.clone(), &chat_of(&none).tools),
        (ToolChoice::None, &None)
    );
}

#[test]
fn wrong_tools_are_refused_by_their_place() {
    let tools = |tools: &str| chat(&format!(r#","tools":{tools}"#));
    refused(tools("{}"), "tools", "must be a list");
    refused(tools("[1]"), "tools[0]", "type");
    refused(tools(r#"[{"type":"web_search"}]"#), "tools[0]", "supported");
    refused(tools(r#"[{"type":"function"}]"#), "tools[0]", "no function");
    refused(
        tools(r#"[{"type":"function","function":{}}]"#),
        "tools[0].function",
        "no name",
    );
    for name in [r#""""#, r#""a b""#, r#""a\"b""#, "\"ä\"", "1", "null"] {
        let body = format!(r#"[{{"type":"function","function":{{"name":{name}}}}}]"#);
        refused(tools(&body), "tools[0].function.name", "must be");
    }
    let twice = r#"[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}]"#;
    refused(tools(twice), "tools", "declared twice");
    let parameters = r#"[{"type":"function","function":{"name":"f","parameters":"{}"}}]"#;
    refused(tools(parameters), "tools[0].function.parameters", "must be an object");
    refused(chat(r#","tool_choice":"required""#), "tool_choice", "send tools");
    let named = r#","tool_choice":{"type":"function","function":{"name":"f"}}"#;
    refused(chat(named), "tool_choice", "send tools");
    refused(
        chat(r#","tool_choice":{"type":"function","function":{"name":1}}"#),
        "tool_choice.function.name",
        "must be a string",
    );
}

#[test]
fn the_level_of_reasoning_is_the_models_to_judge() {
    let call = chat(r#","reasoning_effort":"minimal""#).unwrap();
    assert_eq!(chat_of(&call).reasoning_effort.as_deref(), Some("minimal"));
    assert_eq!(chat_of(&chat("").unwrap()).reasoning_effort, None);
    refused(chat(r#","reasoning_effort":1"#), "reasoning_effort", "must be a string");
}

#[test]
fn unknown_fields_are_listed_wherever_they_stand() {
    let call = read_as(
        Api::Chat,
        r#"{"model":"m","zeta":1,"prompt":"p","echo":true,"stream":true,"stream_options":{"x":1},
            "messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{}}],"mood":1}]}"#,
    )
    .unwrap();
    assert_eq!(
        call.ignored,
        [
            "echo",
            "messages[0].content[0].cache_control",
            "messages[0].mood",
            "prompt",
            "stream_options.x",
            "zeta"
        ]
    );
    let many: String = (0..1000).map(|i| format!(r#","f{i}":0"#)).collect();
    assert_eq!(chat(&many).unwrap().ignored.len(), 32);
}

fn messages(list: &str) -> Result<Vec<ChatMessage>, ApiError> {
    let call = read_as(Api::Chat, &format!(r#"{{"model":"m","messages":{list}}}"#))?;
    let TextInput::Chat(chat) = call.text.input else {
        panic!("a chat")
    };
    Ok(chat.messages)
}

#[test]
fn messages_arrive_as_they_were_sent() {
    let got = messages(
        r#"[{"role":"user","name":"ann","content":[{"type":"text","text":"a "},{"type":"text","text":"b"}]},
            {"role":"assistant","content":null,"reasoning_content":"hm",
             "tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},
            {"role":"tool","tool_call_id":"c1","content":"4"}]"#,
    )
    .unwrap();
    let parts = vec![Part::Text("a ".into()), Part::Text("b".into())];
    assert_eq!(got[0].content, Some(Content::Parts(parts)));
    assert_eq!(got[0].name.as_deref(), Some("ann"));
    assert_eq!(
        (got[1].content.as_ref(), got[1].reasoning.as_deref()),
        (None, Some("hm"))
    );
    let call = &got[1].tool_calls[0];
    assert_eq!((&*call.id, &*call.name, &*call.arguments.0), ("c1", "f", "{\"x\":1}"));
    assert_eq!(got[2].tool_call_id.as_deref(), Some("c1"));
}

#[test]
fn malformed_messages_are_refused_by_their_place() {
    for (list, param) in [
        (r#""hi""#, "messages"),
        ("[]", "messages"),
        ("[1]", "messages[0]"),
        (r#"[{"content":"x"}]"#, "messages[0].role"),
        (r#"[{"role":5,"content":"x"}]"#, "messages[0].role"),
        (r#"[{"role":"robot","content":"x"}]"#, "messages[0].role"),
        (r#"[{"role":"user","content":12}]"#, "messages[0].content"),
        (r#"[{"role":"user"}]"#, "messages[0].content"),
        (
            r#"[{"role":"user","content":[{"type":"image_url"}]}]"#,
            "messages[0].content[0]",
        ),
        (
            r#"[{"role":"user","content":[{"text":"x"}]}]"#,
            "messages[0].content[0]",
        ),
        (
            r#"[{"role":"user","content":[{"type":"text"}]}]"#,
            "messages[0].content[0]",
        ),
        (r#"[{"role":"tool","content":"x"}]"#, "messages[0].tool_call_id"),
        (
            r#"[{"role":"assistant","tool_calls":[{"id":"a"}]}]"#,
            "messages[0].tool_calls[0].function",
        ),
        (
            r#"[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":{}}}]}]"#,
            "messages[0].tool_calls[0].function.arguments",
        ),
    ] {
        let error = messages(list).expect_err(list);
        assert_eq!(
            (error.status(), error.param.as_deref()),
            (400, Some(param)),
            "{list}: {error:?}"
        );
    }
}

#[test]
fn a_message_can_be_continued_only_if_it_is_the_assistants() {
    let last = |role: &str, extra: &str| {
        read_as(
            Api::Chat,
            &format!(r#"{{"model":"m","messages":[{{"role":"{role}","content":"x"}}],{extra}}}"#),
        )
    };
    assert!(
        last(
            "assistant",
            r#""continue_final_message":true,"add_generation_prompt":false"#
        )
        .is_ok()
    );
    refused(
        last("user", r#""continue_final_message":true"#),
        "continue_final_message",
        "role user",
    );
    refused(
        last("user", r#""add_generation_prompt":false"#),
        "add_generation_prompt",
        "must be true",
    );
    refused(
        last(
            "assistant",
            r#""continue_final_message":true,"add_generation_prompt":true"#,
        ),
        "add_generation_prompt",
        "must be false",
    );
}

#[test]
fn prompts_come_as_text_or_tokens_and_one_at_a_time() {
    let prompt = |value: &str| {
        read_as(Api::Completions, &format!(r#"{{"model":"m","prompt":{value}}}"#)).map(|call| call.text.input)
    };
    assert_eq!(prompt(r#""a""#), Ok(TextInput::Text("a".into())));
    assert_eq!(prompt(r#"["a"]"#), Ok(TextInput::Text("a".into())));
    assert_eq!(prompt("[1,2]"), Ok(TextInput::Tokens(vec![1, 2])));
    assert_eq!(prompt("[[1,2]]"), Ok(TextInput::Tokens(vec![1, 2])));
    for wrong in [
        "[]",
        "[[]]",
        "5",
        "{}",
        "[1,\"a\"]",
        "[-1]",
        "[1.5]",
        r#"["a","b"]"#,
        "[[1],[2]]",
    ] {
        let error = prompt(wrong).expect_err(wrong);
        assert!(error.param.unwrap().starts_with("prompt"), "{wrong}");
    }
    refused(read_as(Api::Completions, r#"{"model":"m"}"#), "prompt", "missing");
}

#[test]
fn a_body_without_model_or_of_another_kind_is_refused() {
    refused(
        read_as(Api::Chat, r#"{"messages":[{"role":"user","content":"x"}]}"#),
        "model",
        "missing",
    );
    refused(read_as(Api::Chat, r#"{"model":"m"}"#), "messages", "missing");
    for body in ["[]", "\"x\"", "null"] {
        let error = read_as(Api::Chat, body).expect_err(body);
        assert!(
            error.message.starts_with("the body must be a JSON object"),
            "{}",
            error.message
        );
    }
}

#[test]
fn no_field_has_two_rows_for_one_api() {
    for api in [Api::Chat, Api::Completions] {
        let mut names: Vec<_> = FIELDS
            .iter()
            .filter(|(_, on, _)| on.covers(api))
            .map(|(name, ..)| name)
            .collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
